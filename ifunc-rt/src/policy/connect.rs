//! Which peers connect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

#[cfg(feature = "tls")]
use super::certificates::CertificateRule;
use crate::keys::{PublicKey, TlsKeys};

/// Which peers connect: by user where the kernel reports it, by address where the transport knows it, by key where peers prove theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connect {
    users: Users,
    /// `None`: from everywhere.
    addresses: Option<Vec<AddressRange>>,
    /// Keys of peers, and their names.
    keys: BTreeMap<PublicKey, String>,
    /// Authorities, and the names of those of their certificates by which peers connect.
    #[cfg(feature = "tls")]
    pub(super) certificates: Vec<CertificateRule>,
    /// Keys that no peer connects by, whatever else is said of them.
    revoked: BTreeSet<PublicKey>,
    /// The keys of the target itself, and of its peers.
    pub(crate) tls: Option<TlsKeys>,
}

/// Users whose processes connect.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Users {
    /// The target's own, and these.
    Own(BTreeSet<u32>),
    Any,
}

impl Default for Users {
    fn default() -> Self {
        Self::Own(BTreeSet::new())
    }
}

impl Connect {
    pub(super) fn add_users(&mut self, more: impl IntoIterator<Item = u32>) {
        if let Users::Own(users) = &mut self.users {
            users.extend(more);
        }
    }

    pub(super) fn add_any_user(&mut self) {
        self.users = Users::Any;
    }

    pub(super) fn add_addresses(&mut self, more: impl IntoIterator<Item = AddressRange>) {
        self.addresses.get_or_insert_default().extend(more);
    }

    /// Whether processes of other users than the target's own connect.
    pub(crate) fn has_other_users(&self) -> bool {
        !matches!(&self.users, Users::Own(users) if users.is_empty())
    }

    /// Whether a process of this user connects to one of the user `own`.
    pub(crate) fn admits_user(&self, user: u32, own: u32) -> bool {
        match &self.users {
            Users::Own(users) => user == own || users.contains(&user),
            Users::Any => true,
        }
    }

    pub(super) fn add_key(&mut self, name: String, key: PublicKey) {
        self.keys.insert(key, name);
    }

    pub(super) fn revoke(&mut self, key: PublicKey) {
        self.revoked.insert(key);
    }

    /// Whether it names keys of peers, or certificates.
    pub(crate) fn has_keys(&self) -> bool {
        #[cfg(feature = "tls")]
        let has_certificates = !self.certificates.is_empty();
        #[cfg(not(feature = "tls"))]
        let has_certificates = false;
        has_certificates || !self.keys.is_empty()
    }

    /// Whether no peer connects by this key any more.
    pub(crate) fn is_revoked(&self, key: &PublicKey) -> bool {
        self.revoked.contains(key)
    }

    /// Whether the holder of a key connects: it is one of the policy, or of the `peers` of the target's keys.
    #[cfg(feature = "tls")]
    pub(crate) fn admits_key(&self, key: &PublicKey, peers: &TlsKeys) -> bool {
        !self.is_revoked(key) && (self.keys.contains_key(key) || peers.has_peer(key))
    }

    /// The name that the policy gives the key of a peer.
    #[cfg(feature = "tls")]
    pub(crate) fn name_of_key(&self, key: &PublicKey) -> Option<&str> {
        self.keys.get(key).map(String::as_str)
    }

    /// Whether the address decides.
    pub(crate) fn has_addresses(&self) -> bool {
        self.addresses.is_some()
    }

    /// Whether a peer at this address connects. `None`: it is unknown.
    #[cfg(any(test, feature = "ucx", feature = "tls"))]
    pub(crate) fn admits_address(&self, address: Option<IpAddr>) -> bool {
        let Some(ranges) = &self.addresses else {
            return true;
        };
        address.is_some_and(|address| ranges.iter().any(|range| range.contains(address)))
    }
}

/// A range of IP addresses, such as `10.1.0.0/16`, `fd00::/8` or `192.168.1.7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    /// Number of leading bits that an address has in common with `first`.
    bits: u32,
}

/// Text that is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a range of addresses: {why}; help: write `10.1.0.0/16`, `fd00::/8` or one address")]
pub struct InvalidRange {
    text: String,
    why: &'static str,
}

impl AddressRange {
    /// Whether an address is in the range. An IPv4 address that is written as one of IPv6 is that IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (first, first_len) = as_bits(self.first);
        let (address, len) = as_bits(address.to_canonical());
        first_len == len && (first ^ address).leading_zeros() >= self.bits
    }
}

/// The bits of an address, from the first one on, and their number.
fn as_bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

impl FromStr for AddressRange {
    type Err = InvalidRange;

    fn from_str(text: &str) -> Result<Self, InvalidRange> {
        let invalid = |why| InvalidRange {
            text: text.to_owned(),
            why,
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = address
            .parse()
            .map_err(|_| invalid("it begins with no address"))?;
        let (value, len) = as_bits(first);
        let bits = match bits.map(str::parse) {
            None => len,
            Some(Ok(bits)) if bits <= len => bits,
            Some(_) => return Err(invalid("an address has fewer bits than follow the `/`")),
        };
        let rest = value.checked_shl(bits).unwrap_or(0);
        if rest != 0 {
            return Err(invalid("bits are set after those that the `/` counts"));
        }
        Ok(Self { first, bits })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_what_begins_with_its_bits() {
        let contains = |range: &str, address: &str| {
            let range: AddressRange = range.parse().unwrap();
            range.contains(address.parse().unwrap())
        };
        for (range, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("10.1.0.0/16", "::ffff:10.1.0.1", "::a01:1"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "ffff::", "1.2.3.4"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("192.168.1.7", "192.168.1.7", "192.168.1.6"),
            ("::1", "::1", "::"),
            ("128.0.0.0/1", "128.0.0.1", "127.255.255.255"),
        ] {
            assert!(contains(range, inside), "{range} {inside}");
            assert!(!contains(range, outside), "{range} {outside}");
        }
        for text in [
            "",
            "host",
            "10.1.0.0/33",
            "10.1.0.0/",
            "10.1.0.0/-1",
            "10.1.2.0/16",
            "::/129",
        ] {
            let error = text.parse::<AddressRange>().unwrap_err().to_string();
            assert!(error.contains("help: write"), "{error}");
        }
    }

    #[test]
    fn users_and_addresses_decide() {
        let mut connect = Connect::default();
        assert!(connect.admits_user(7, 7) && !connect.admits_user(8, 7) && !connect.has_other_users());
        // Nor the superuser, unless it is named.
        assert!(!connect.admits_user(0, 7));
        connect.add_users([8]);
        assert!(connect.admits_user(7, 7) && connect.admits_user(8, 7) && !connect.admits_user(9, 7));
        connect.add_any_user();
        connect.add_users([1]);
        assert!(connect.admits_user(9, 7) && connect.has_other_users());
        assert!(connect.admits_address(None));
        connect.add_addresses(["10.0.0.0/8".parse().unwrap()]);
        connect.add_addresses(["::1".parse().unwrap()]);
        for (address, is_admitted) in [("10.1.2.3", true), ("::1", true), ("11.0.0.1", false)] {
            assert_eq!(
                connect.admits_address(Some(address.parse().unwrap())),
                is_admitted
            );
        }
        assert!(!connect.admits_address(None));
    }
}
