//! The objects and archives of a link, and who defines a symbol.
//!
//! Objects are all there; a member of an archive is read when a symbol that it defines is asked for. Which definition
//! is taken depends on the inputs alone, never on what was linked before: a linker that makes several images of one
//! archive makes each as if it were the only one.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};

use object::read::archive::ArchiveFile;

use crate::help;
use crate::lines::Lines;
use crate::object_file::{Object, Place, Symbol, Unreadable, without_version};

/// Whose code an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The author's: a constructor in it is refused, because it would silently not run.
    User,
    /// The author's too, an object that stands beside the ones this image is about: it is asked when they lack a
    /// definition, and may define again what they define, as a member of an archive may.
    Neighbour,
    /// The compiler's support library (`libgcc.a`): a constructor in it is refused as well, unless the image calls its
    /// function itself (`__builtin_cpu_init`).
    Support,
}

/// An object file or an archive of them.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Its name, for messages.
    pub name: &'a str,
    /// Its bytes.
    pub data: &'a [u8],
    /// Whose it is.
    pub role: Role,
}

/// Why an input cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot link `{name}`: {reason}")]
pub struct InputError {
    /// The input.
    pub name: String,
    /// What is wrong with it and, in a line that begins with `help: `, what to do.
    pub reason: String,
}

impl InputError {
    fn new(name: &str, reason: &str, help: &str) -> Self {
        Self {
            name: name.into(),
            reason: format!("{reason}\nhelp: {help}"),
        }
    }
}

/// An object that is read when it is needed.
struct Slot<'a> {
    name: String,
    data: &'a [u8],
    role: Role,
    /// A member of an archive: of equal definitions the first is the one that is meant.
    archived: bool,
    object: OnceCell<Result<Object<'a>, Unreadable>>,
    /// Read when something of the object is refused.
    lines: OnceCell<Option<Lines>>,
}

/// Objects among which the best definition wins. Groups are searched in order: the objects, their neighbours, then each
/// archive.
#[derive(Default)]
struct Group<'a> {
    /// Symbol to the slots that define it, in order.
    index: HashMap<&'a str, Vec<usize>>,
}

/// A global definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) object: usize,
    pub(crate) symbol: usize,
    /// Another object whose definition is as good: which one is meant, nobody can tell.
    pub(crate) rival: Option<usize>,
}

/// The inputs of a link.
pub(crate) struct Inputs<'a> {
    slots: Vec<Slot<'a>>,
    groups: Vec<Group<'a>>,
}

impl<'a> Inputs<'a> {
    /// Opens the inputs. An error names the input.
    pub(crate) fn open(inputs: &[Input<'a>]) -> Result<Self, InputError> {
        let mut this = Self {
            slots: Vec::new(),
            groups: Vec::new(),
        };
        for neighbours in [false, true] {
            let mut objects = Group::default();
            for input in inputs
                .iter()
                .filter(|i| !is_archive(i.data) && (i.role == Role::Neighbour) == neighbours)
            {
                let slot = this.add(input.name.into(), input.data, input.role, false);
                this.index_object(slot, &mut objects)?;
            }
            this.groups.push(objects);
        }
        for input in inputs.iter().filter(|i| is_archive(i.data)) {
            let group = this.open_archive(input)?;
            this.groups.push(group);
        }
        Ok(this)
    }

    fn add(&mut self, name: String, data: &'a [u8], role: Role, archived: bool) -> usize {
        self.slots.push(Slot {
            name,
            data,
            role,
            archived,
            object: OnceCell::new(),
            lines: OnceCell::new(),
        });
        self.slots.len() - 1
    }

    /// Reads an object now, for its symbols.
    fn index_object(&self, slot: usize, group: &mut Group<'a>) -> Result<(), InputError> {
        let object = self
            .object(slot)
            .map_err(|e| InputError::new(self.name(slot), &e.reason, e.help))?;
        for &name in object.globals.keys() {
            group.index.entry(name).or_default().push(slot);
        }
        Ok(())
    }

    fn open_archive(&mut self, input: &Input<'a>) -> Result<Group<'a>, InputError> {
        let fail = |e: object::Error| InputError::new(input.name, &e.to_string(), help::NO_OBJECT);
        let archive = ArchiveFile::parse(input.data).map_err(fail)?;
        if archive.is_thin() {
            return Err(InputError::new(input.name, "a thin archive", help::THIN_ARCHIVE));
        }
        let mut group = Group::default();
        let mut by_offset = HashMap::new();
        let first = self.slots.len();
        for member in archive.members() {
            let member = member.map_err(fail)?;
            let name = format!("{}({})", input.name, String::from_utf8_lossy(member.name()));
            let data = member.data(input.data).map_err(fail)?;
            let slot = self.add(name, data, input.role, true);
            // A symbol table counts from a member's header, which is of fixed length and may be followed by a name.
            by_offset.insert(member.file_range().0, slot);
        }
        match archive.symbols().map_err(fail)? {
            Some(symbols) => {
                for symbol in symbols {
                    let symbol = symbol.map_err(fail)?;
                    let member = archive.member(symbol.offset()).map_err(fail)?;
                    let (Ok(name), Some(&slot)) = (
                        std::str::from_utf8(symbol.name()),
                        by_offset.get(&member.file_range().0),
                    ) else {
                        continue;
                    };
                    for name in [name, without_version(name)] {
                        let slots: &mut Vec<usize> = group.index.entry(name).or_default();
                        if slots.last() != Some(&slot) {
                            slots.push(slot);
                        }
                    }
                }
            }
            None => {
                // No index: every member that is an object is read. Others (metadata) are none of our business.
                for slot in first..self.slots.len() {
                    let _ = self.index_object(slot, &mut group);
                }
            }
        }
        for slots in group.index.values_mut() {
            slots.sort_unstable();
        }
        Ok(group)
    }

    /// The object of a slot, read on the first call.
    pub(crate) fn object(&self, slot: usize) -> Result<&Object<'a>, &Unreadable> {
        let slot = &self.slots[slot];
        slot.object
            .get_or_init(|| Object::parse(slot.name.clone(), slot.data))
            .as_ref()
    }

    /// The source line of a place of an object, if the object tells.
    pub(crate) fn line(&self, slot: usize, section: usize, offset: u64) -> Option<String> {
        let slot = &self.slots[slot];
        slot.lines
            .get_or_init(|| Lines::read(slot.data))
            .as_ref()?
            .at(section, offset)
    }

    /// How many objects there are, members of archives included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whose an object is.
    pub(crate) fn role(&self, slot: usize) -> Role {
        self.slots[slot].role
    }

    /// Whether an object is a member of an archive.
    pub(crate) fn archived(&self, slot: usize) -> bool {
        self.slots[slot].archived
    }

    /// Name of an object.
    pub(crate) fn name(&self, slot: usize) -> &str {
        &self.slots[slot].name
    }

    /// Bytes of an object.
    pub(crate) fn data(&self, slot: usize) -> &'a [u8] {
        self.slots[slot].data
    }

    /// The definition of `name` that wins: strong before common before weak, then the first. What comes later is asked
    /// only if nothing was found, or if a common symbol yields to a strong definition.
    pub(crate) fn definition(&self, name: &str) -> Result<Option<Definition>, (&str, &Unreadable)> {
        let mut common = None;
        for group in &self.groups {
            let mut best: Option<(u8, Definition)> = None;
            for &slot in group.index.get(name).map_or(&[][..], |slots| slots) {
                let object = self.object(slot).map_err(|e| (self.name(slot), e))?;
                let Some(&symbol) = object.globals.get(name) else {
                    continue;
                };
                let rank = match object.symbols[symbol] {
                    s if s.weak => 2,
                    Symbol {
                        place: Place::Common { .. },
                        ..
                    } => 1,
                    _ => 0,
                };
                let definition = Definition {
                    object: slot,
                    symbol,
                    rival: None,
                };
                match &mut best {
                    Some((0, best)) if rank == 0 => {
                        if !self.archived(slot) && !self.are_copies(best, &definition) {
                            best.rival.get_or_insert(slot);
                        }
                    }
                    Some((known, _)) if rank >= *known => {}
                    _ => best = Some((rank, definition)),
                }
            }
            match best {
                Some((0, definition)) => return Ok(Some(definition)),
                Some((1, definition)) => {
                    common.get_or_insert(definition);
                }
                Some((_, definition)) if common.is_none() => return Ok(Some(definition)),
                _ => {}
            }
        }
        Ok(common)
    }

    /// Whether two definitions stand in groups of one signature: copies of each other.
    pub(crate) fn are_copies(&self, one: &Definition, other: &Definition) -> bool {
        let group = |of: &Definition| {
            let object = self.object(of.object).ok()?;
            match object.symbols[of.symbol].place {
                Place::Section { index, .. } => object.sections[index].group,
                _ => None,
            }
        };
        group(one).is_some_and(|signature| group(other) == Some(signature))
    }

    /// The objects that references from `roots` and from the objects `given` need, directly or not, `given` included: as an
    /// ordinary linker finds them. A weak reference extracts no member of an archive.
    pub(crate) fn closure<'n>(&'n self, given: BTreeSet<usize>, roots: &'n [String]) -> BTreeSet<usize> {
        let mut found = given;
        let mut open: Vec<usize> = found.iter().copied().collect();
        let mut seen = HashSet::new();
        let roots = roots.iter().map(|root| (&**root, false)).collect();
        let mut wanted: Vec<(&str, bool)> = roots;
        loop {
            for (name, weak) in wanted.drain(..) {
                if let Ok(Some(definition)) = self.definition(name)
                    && !(weak && self.archived(definition.object))
                    && found.insert(definition.object)
                {
                    open.push(definition.object);
                }
            }
            let Some(object) = open.pop() else {
                return found;
            };
            let symbols = self.object(object).map_or(&[][..], |object| &object.symbols);
            let undefined = symbols.iter().filter(|s| !s.local && s.place == Place::Undefined);
            let names = undefined.map(|s| (s.name, s.weak));
            wanted.extend(names.filter(|&reference| seen.insert(reference)));
        }
    }

    /// The members of archives that an ordinary linker extracts for a program of `root`.
    pub(crate) fn extracted_members(&self, root: &str) -> BTreeSet<usize> {
        let objects = (0..self.slots.len()).filter(|&slot| !self.archived(slot));
        let mut found = self.closure(objects.collect(), &[root.to_owned()]);
        found.retain(|&slot| self.archived(slot));
        found
    }

    /// Size and alignment of a common symbol: the largest that any object asks for.
    pub(crate) fn common_extent(&self, name: &str) -> (u64, u64) {
        let mut extent = (0, 1);
        for group in &self.groups {
            for &slot in group.index.get(name).map_or(&[][..], |slots| slots) {
                let Ok(object) = self.object(slot) else { continue };
                if let Some(&symbol) = object.globals.get(name)
                    && let Place::Common { size, align } = object.symbols[symbol].place
                {
                    extent = (extent.0.max(size), extent.1.max(align));
                }
            }
        }
        extent
    }
}

fn is_archive(data: &[u8]) -> bool {
    data.starts_with(b"!<arch>\n") || data.starts_with(b"!<thin>\n")
}
