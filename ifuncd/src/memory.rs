//! The capability `memory`: named regions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ifuncd_interfaces::{Memory, NodeError};

use crate::capability::Capability;
use crate::node::{Caller, Node};

/// Longest name.
const MAX_NAME: usize = 256;
/// What a region counts beside its bytes.
const OVERHEAD: u64 = 512;

type Region = Arc<Mutex<Box<[u8]>>>;
/// Lengths and regions, by namespace and name.
type ByName = BTreeMap<(Arc<str>, String), (u64, Region)>;

/// The regions of all namespaces.
#[derive(Debug)]
pub struct Regions {
    all: Mutex<ByName>,
    /// Bytes of all of them.
    max_bytes: u64,
}

/// What a region of `len` bytes counts.
fn size(len: u64) -> u64 {
    len.saturating_add(OVERHEAD)
}

impl Regions {
    /// None yet, and at most so many bytes.
    #[must_use]
    pub fn new(max_bytes: u64) -> Self {
        Self {
            all: Mutex::default(),
            max_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, ByName> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes that the regions of a namespace count.
    #[must_use]
    pub fn used(&self, namespace: &str) -> u64 {
        let all = self.lock();
        let of_namespace = all.iter().filter(|((of, _), _)| **of == *namespace);
        of_namespace.map(|(_, (len, _))| size(*len)).sum()
    }

    fn create(&self, namespace: &Arc<str>, name: &str, len: u64, quota: u64) -> Result<(), NodeError> {
        let mut all = self.lock();
        let key = (Arc::clone(namespace), name.to_owned());
        if let Some((known, _)) = all.get(&key) {
            return if *known == len {
                Ok(())
            } else {
                Err(NodeError::Conflict)
            };
        }
        let (mut of_all, mut of_namespace) = (size(len), size(len));
        for ((of, _), (len, _)) in all.iter() {
            of_all = of_all.saturating_add(size(*len));
            if of == namespace {
                of_namespace = of_namespace.saturating_add(size(*len));
            }
        }
        if of_namespace > quota || of_all > self.max_bytes {
            return Err(NodeError::Quota);
        }
        let bytes = usize::try_from(len).map_err(|_| NodeError::Quota)?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(bytes).map_err(|_| NodeError::Quota)?;
        memory.resize(bytes, 0);
        all.insert(key, (len, Arc::new(Mutex::new(memory.into_boxed_slice()))));
        Ok(())
    }

    fn get(&self, namespace: &Arc<str>, name: &str) -> Result<Region, NodeError> {
        let key = (Arc::clone(namespace), name.to_owned());
        let all = self.lock();
        all.get(&key)
            .map(|(_, region)| Arc::clone(region))
            .ok_or(NodeError::NotFound)
    }
}

impl Node {
    fn regions_of(&self) -> Result<(Caller, &Regions), NodeError> {
        let caller = self.caller(Capability::Memory)?;
        let regions = self.data().memory.as_ref().ok_or(NodeError::Denied)?;
        Ok((caller, regions))
    }

    /// Calls with `len` bytes of a region.
    fn with_bytes<R>(
        &self,
        name: &str,
        offset: u64,
        len: usize,
        call: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, NodeError> {
        let (caller, regions) = self.regions_of()?;
        let region = regions.get(&caller.settings.namespace, name)?;
        let mut region = region.lock().unwrap_or_else(PoisonError::into_inner);
        let from = usize::try_from(offset).map_err(|_| NodeError::Range)?;
        let to = from.checked_add(len).ok_or(NodeError::Range)?;
        let bytes = region.get_mut(from..to).ok_or(NodeError::Range)?;
        caller.moved(len);
        Ok(call(bytes))
    }

    /// Calls with a number of a region.
    fn with_number<R>(
        &self,
        name: &str,
        offset: u64,
        call: impl FnOnce(&mut u64) -> R,
    ) -> Result<R, NodeError> {
        self.with_bytes(name, offset, size_of::<u64>(), |bytes| {
            let mut number = 0_u64.to_le_bytes();
            number.copy_from_slice(bytes);
            let mut number = u64::from_le_bytes(number);
            let result = call(&mut number);
            bytes.copy_from_slice(&number.to_le_bytes());
            result
        })
    }
}

#[ifunc::export]
impl Memory for Node {
    fn create_region(&self, name: &str, len: u64) -> Result<(), NodeError> {
        let (caller, regions) = self.regions_of()?;
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(NodeError::Name);
        }
        let settings = &caller.settings;
        let created = regions.create(&settings.namespace, name, len, settings.memory_bytes);
        created.map_err(|error| match error {
            NodeError::Quota => caller.refuse(error, "memory-bytes"),
            other => other,
        })
    }

    fn remove_region(&self, name: &str) -> Result<(), NodeError> {
        let (caller, regions) = self.regions_of()?;
        let key = (Arc::clone(&caller.settings.namespace), name.to_owned());
        regions.lock().remove(&key).map(drop).ok_or(NodeError::NotFound)
    }

    fn region_len(&self, name: &str) -> Result<u64, NodeError> {
        let (caller, regions) = self.regions_of()?;
        let region = regions.get(&caller.settings.namespace, name)?;
        let len = region.lock().unwrap_or_else(PoisonError::into_inner).len();
        Ok(len as u64)
    }

    fn load(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<(), NodeError> {
        self.with_bytes(name, offset, bytes.len(), |region| bytes.copy_from_slice(region))
    }

    fn store(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), NodeError> {
        self.with_bytes(name, offset, bytes.len(), |region| region.copy_from_slice(bytes))
    }

    fn fetch_add(&self, name: &str, offset: u64, value: u64) -> Result<u64, NodeError> {
        self.with_number(name, offset, |number| {
            let before = *number;
            *number = before.wrapping_add(value);
            before
        })
    }

    fn compare_swap(&self, name: &str, offset: u64, expected: u64, new: u64) -> Result<u64, NodeError> {
        self.with_number(name, offset, |number| {
            let before = *number;
            if before == expected {
                *number = new;
            }
            before
        })
    }

    fn regions(&self, each: &mut dyn FnMut(&str, u64) -> ControlFlow<()>) -> Result<u64, NodeError> {
        let (caller, regions) = self.regions_of()?;
        // The lock is not held while the ifunc runs.
        let names: Vec<_> = {
            let all = regions.lock();
            let own = all.iter().filter(|((of, _), _)| *of == caller.settings.namespace);
            own.map(|((_, name), (len, _))| (name.clone(), *len)).collect()
        };
        let mut count = 0;
        for (name, len) in &names {
            count += 1;
            if each(name, *len).is_break() {
                break;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_count_against_their_namespace_and_the_node() {
        let regions = Regions::new(10_000);
        let (ada, bob): (Arc<str>, Arc<str>) = ("ada".into(), "bob".into());
        assert_eq!(regions.create(&ada, "a", 1000, 4000), Ok(()));
        assert_eq!(regions.create(&ada, "a", 1000, 4000), Ok(()));
        assert_eq!(regions.create(&ada, "a", 1001, 4000), Err(NodeError::Conflict));
        assert_eq!(regions.used("ada"), 1512);
        assert_eq!(regions.create(&ada, "b", 3000, 4000), Err(NodeError::Quota));
        // Another namespace has a quota and names of its own, and the node a limit for all.
        assert_eq!(regions.create(&bob, "a", 3000, 4000), Ok(()));
        assert_eq!(
            regions.create(&bob, "huge", u64::MAX, u64::MAX),
            Err(NodeError::Quota)
        );
        assert_eq!(regions.create(&bob, "b", 8000, u64::MAX), Err(NodeError::Quota));
        assert!(regions.get(&ada, "b").is_err() && regions.get(&bob, "a").is_ok());
    }
}
