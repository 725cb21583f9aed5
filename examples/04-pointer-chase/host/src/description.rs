//! How a process is reached by UCX, as bytes that an ifunc carries.

use example_servers::Failure;

/// A worker, and the memory that others may read; none for the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// UCX's address of the worker.
    pub worker: Vec<u8>,
    /// UCX's key of the memory.
    pub key: Vec<u8>,
    /// Where the memory begins in its process.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Description {
    /// The description as bytes. Several follow each other.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [
            self.address,
            self.len,
            self.worker.len() as u64,
            self.key.len() as u64,
        ] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(&self.worker);
        bytes.extend(&self.key);
        bytes
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let mut number = || {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(u64::from_le_bytes(*number))
        };
        let [address, len, worker_len, key_len] = [number()?, number()?, number()?, number()?];
        let mut part = |len: u64| {
            let (part, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
            *bytes = rest;
            Some(part.to_vec())
        };
        Some(Self {
            worker: part(worker_len)?,
            key: part(key_len)?,
            address,
            len,
        })
    }
}

/// Reads several descriptions.
///
/// # Errors
/// The bytes end in the middle of one.
pub fn decode_all(mut bytes: &[u8]) -> Result<Vec<Description>, Failure> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(Description::decode(&mut bytes).ok_or("a description is cut off")?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_follow_each_other() {
        let one = Description {
            worker: vec![1; 5],
            key: vec![2; 3],
            address: 7,
            len: u64::MAX,
        };
        let both = [one.encode(), Description::default().encode()].concat();
        assert_eq!(decode_all(&both).unwrap(), [one, Description::default()]);
        for len in 1..both.len() {
            // Cut after the first, it is one.
            assert_eq!(decode_all(&both[..len]).is_ok(), len == 40);
        }
    }
}
