//! Which objects a shared library of some symbols is made of: the objects that define them, those that define what
//! these leave undefined, and so on, as any linker would pull them out of archives.

use std::collections::BTreeSet;

use super::Linker;
use super::object_file::Place;

impl<'a> Linker<'a> {
    /// Names and bytes of the objects that `roots` need, in the order of the inputs. Objects that cannot be read are
    /// left out: a link that needs them says so.
    pub(crate) fn objects_of(&self, roots: &[String]) -> Vec<(&str, &'a [u8])> {
        let mut found = BTreeSet::new();
        let mut wanted: Vec<&str> = roots.iter().map(|root| &**root).collect();
        while let Some(name) = wanted.pop() {
            let Ok(Some(definition)) = self.inputs.definition(name) else {
                continue;
            };
            if !found.insert(definition.object) {
                continue;
            }
            let Ok(object) = self.inputs.object(definition.object) else {
                continue;
            };
            let undefined = object
                .symbols
                .iter()
                .filter(|s| !s.local && s.place == Place::Undefined);
            wanted.extend(undefined.map(|s| s.name));
        }
        found
            .into_iter()
            .map(|slot| (self.inputs.name(slot), self.inputs.data(slot)))
            .collect()
    }
}
