//! The address of a UCX worker, as it is passed on by means that are none of UCX's: printed, pasted, kept in a file.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use super::address::AddressError;

/// What `ucp_worker_get_address` gives, and the id of the active messages that are understood there.
///
/// As text it is hexadecimal digits that end in a checksum, which detects a text that was truncated or changed by accident,
/// but no forged one. UCX does not validate addresses, and a forged one can make it do anything: take addresses from trusted
/// sources only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WorkerAddress {
    am_id: u16,
    bytes: Arc<[u8]>,
}

/// How the bytes begin.
const FORM: u8 = 1;
/// Form, a zero, the id.
const HEAD: usize = 4;
/// First bytes of BLAKE3 of what is before.
const CHECKSUM: usize = 8;

impl WorkerAddress {
    /// Most bytes that UCX's own part may have: a host with many devices has some 2 KiB.
    pub(super) const MOST: usize = 8 << 10;
    /// Most bytes of it all.
    pub(super) const LONGEST: usize = HEAD + Self::MOST + CHECKSUM;

    /// `None`: longer than any address.
    pub(super) fn new(am_id: u16, bytes: &[u8]) -> Option<Self> {
        (1..=Self::MOST).contains(&bytes.len()).then(|| Self {
            am_id,
            bytes: bytes.into(),
        })
    }

    /// The id of the active messages.
    #[must_use]
    pub fn am_id(&self) -> u16 {
        self.am_id
    }

    /// What UCX calls a worker's address.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Form, id, UCX's bytes and checksum.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.bytes.len() + CHECKSUM);
        bytes.extend([FORM, 0]);
        bytes.extend(self.am_id.to_le_bytes());
        bytes.extend(&*self.bytes);
        let checksum = blake3::hash(&bytes);
        bytes.extend(&checksum.as_bytes()[..CHECKSUM]);
        bytes
    }

    /// Validates the bytes of [`to_bytes`](Self::to_bytes).
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() > Self::LONGEST {
            return Err("it is longer than any address");
        }
        let Some((rest, checksum)) = bytes.split_last_chunk::<CHECKSUM>() else {
            return Err("its end is missing");
        };
        if blake3::hash(rest).as_bytes()[..CHECKSUM] != checksum[..] {
            return Err("its checksum is another one: something of it is missing or was changed");
        }
        let Some((&[form, zero, low, high], address)) = rest.split_first_chunk::<HEAD>() else {
            return Err("its end is missing");
        };
        if (form, zero) != (FORM, 0) {
            return Err("it is of another version of ifunc-rt");
        }
        Self::new(u16::from_le_bytes([low, high]), address).ok_or("it is empty")
    }
}

impl fmt::Display for WorkerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(2 * Self::LONGEST);
        for byte in self.to_bytes() {
            write!(text, "{byte:02x}")?;
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for WorkerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerAddress")
            .field("am_id", &self.am_id)
            .field("len", &self.bytes.len())
            .finish()
    }
}

impl FromStr for WorkerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |problem| AddressError::Worker {
            begins: text.chars().take(16).collect(),
            len: text.len(),
            problem,
        };
        if text.len() > 2 * Self::LONGEST {
            return Err(wrong("it is longer than any address"));
        }
        let (pairs, odd) = text.as_bytes().as_chunks::<2>();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let bytes: Option<Vec<u8>> = pairs
            .iter()
            .map(|&[high, low]| Some((digit(high)? << 4 | digit(low)?) as u8))
            .collect();
        let bytes = bytes.ok_or_else(|| wrong("it is not made of hexadecimal digits"))?;
        if !odd.is_empty() {
            return Err(wrong("its end is missing"));
        }
        Self::from_bytes(&bytes).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn texts_come_back_and_no_other_text_is_taken(
            id in 0u16..,
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 1..600),
            at in 0usize..1200,
            cut in proptest::prelude::any::<bool>(),
        ) {
            let address = WorkerAddress::new(id, &bytes).unwrap();
            let text = address.to_string();
            assert_eq!((address.am_id(), address.as_bytes()), (id, &bytes[..]));
            assert_eq!(text.parse(), Ok(address));
            let at = at % text.len();
            let mut other = text.clone();
            if cut {
                other.truncate(at);
            } else {
                let digit = if &text[at..=at] == "7" { "8" } else { "7" };
                other.replace_range(at..=at, digit);
            }
            let error = other.parse::<WorkerAddress>().unwrap_err();
            assert!(error.to_string().contains("help: "), "{error}");
        }

        #[test]
        fn any_text_is_validated(text in ".*") {
            let _ = text.parse::<WorkerAddress>();
        }
    }

    #[test]
    fn impossible_addresses_are_refused() {
        assert_eq!(WorkerAddress::new(1, &[]), None);
        assert_eq!(WorkerAddress::new(1, &[0; WorkerAddress::MOST + 1]), None);
        let long = "0".repeat(2 * WorkerAddress::LONGEST + 1);
        assert!(long.parse::<WorkerAddress>().is_err());
        let mut newer = WorkerAddress::new(1, &[3; 40]).unwrap().to_bytes();
        newer[0] = 2;
        let len = newer.len() - CHECKSUM;
        let checksum = blake3::hash(&newer[..len]);
        newer[len..].copy_from_slice(&checksum.as_bytes()[..CHECKSUM]);
        assert_eq!(
            WorkerAddress::from_bytes(&newer),
            Err("it is of another version of ifunc-rt")
        );
    }

    #[test]
    fn the_longest_address_comes_back() {
        let address = WorkerAddress::new(1, &[7; WorkerAddress::MOST]).unwrap();
        assert_eq!(address.to_bytes().len(), WorkerAddress::LONGEST);
        assert_eq!(address.to_string().parse(), Ok(address));
    }
}
