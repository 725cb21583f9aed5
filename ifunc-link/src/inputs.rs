//! The objects and archives of a link, and the definitions of symbols in them.
//!
//! Objects are read when the linker opens. A member of an archive is read when a symbol that it defines is looked up. Which
//! definition wins depends on the inputs alone and not on earlier links: of several images from one archive, each is made
//! as if it were the only one.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};

use object::read::archive::ArchiveFile;

use crate::demangle::demangle;
use crate::help;
use crate::lines::Lines;
use crate::object_file::{Location, Object, Symbol, Unreadable, without_version};

/// The origin of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An object of the author. A constructor in it is refused, because it would silently not run.
    User,
    /// An object of the author that belongs to other ifuncs. It is searched after the [`User`](Self::User) objects, as an
    /// archive is, and may define the same symbols.
    Neighbour,
    /// An object of the author in C or C++, beside ifuncs in Rust. It is searched after all other objects and archives of the
    /// author. A declared import is no reference to it, and what it leaves undefined is an import without a type.
    Helper,
    /// The compiler's support library (`libgcc.a`). A constructor in it is refused, unless the image calls its function
    /// itself (`__builtin_cpu_init`).
    Support,
}

/// An object file or an archive of them.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Its name, for messages.
    pub name: &'a str,
    /// Its bytes.
    pub data: &'a [u8],
    /// Its origin.
    pub role: Role,
}

/// Why an input cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot link `{name}`: {reason}")]
pub struct InputError {
    /// The input.
    pub name: String,
    /// The defect, and a line that begins with `help: `.
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

/// An object that is read on first use.
struct LazyObject<'a> {
    /// Index in the inputs; the members of archives come after all others.
    place: usize,
    name: String,
    data: &'a [u8],
    role: Role,
    /// Among members of archives, the first of equal definitions wins.
    is_archive_member: bool,
    object: OnceCell<Result<Object<'a>, Unreadable>>,
    /// Read for the first refusal of the object.
    lines: OnceCell<Option<Lines>>,
}

/// Objects among which the best definition wins. The search order of groups: the objects, their neighbours, each archive.
#[derive(Default)]
struct SearchGroup<'a> {
    /// The objects that define a symbol, in order.
    definitions: HashMap<&'a str, Vec<usize>>,
}

/// A global definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) object: usize,
    pub(crate) symbol: usize,
    /// Another object with an equally strong definition: the link is ambiguous.
    pub(crate) rival: Option<usize>,
}

/// The inputs of a link.
pub(crate) struct Inputs<'a> {
    objects: Vec<LazyObject<'a>>,
    groups: Vec<SearchGroup<'a>>,
}

impl<'a> Inputs<'a> {
    /// Opens the inputs. An error names the input.
    pub(crate) fn open(inputs: &[Input<'a>]) -> Result<Self, InputError> {
        let mut this = Self {
            objects: Vec::new(),
            groups: Vec::new(),
        };
        let is_own = |role| !matches!(role, Role::Neighbour | Role::Helper);
        this.open_objects(inputs, is_own)?;
        this.open_objects(inputs, |role| role == Role::Neighbour)?;
        let archives = || inputs.iter().filter(|input| is_archive(input.data));
        for input in archives().filter(|input| input.role != Role::Support) {
            let group = this.open_archive(input)?;
            this.groups.push(group);
        }
        this.open_objects(inputs, |role| role == Role::Helper)?;
        for input in archives().filter(|input| input.role == Role::Support) {
            let group = this.open_archive(input)?;
            this.groups.push(group);
        }
        Ok(this)
    }

    /// Opens the objects of some roles, as a group.
    fn open_objects(&mut self, inputs: &[Input<'a>], of: impl Fn(Role) -> bool) -> Result<(), InputError> {
        let mut objects = SearchGroup::default();
        for (place, input) in inputs.iter().enumerate() {
            if is_archive(input.data) || !of(input.role) {
                continue;
            }
            let index = self.add(input.name.into(), input.data, input.role, false);
            self.objects[index].place = place;
            self.index_object(index, &mut objects)?;
        }
        self.groups.push(objects);
        Ok(())
    }

    fn add(&mut self, name: String, data: &'a [u8], role: Role, is_archive_member: bool) -> usize {
        self.objects.push(LazyObject {
            place: usize::MAX,
            name,
            data,
            role,
            is_archive_member,
            object: OnceCell::new(),
            lines: OnceCell::new(),
        });
        self.objects.len() - 1
    }

    /// Reads an object now, for its symbols.
    fn index_object(&self, index: usize, group: &mut SearchGroup<'a>) -> Result<(), InputError> {
        let object = self
            .object(index)
            .map_err(|e| InputError::new(self.name(index), &e.reason, e.help))?;
        for &name in object.globals.keys() {
            group.definitions.entry(name).or_default().push(index);
        }
        Ok(())
    }

    fn open_archive(&mut self, input: &Input<'a>) -> Result<SearchGroup<'a>, InputError> {
        let fail = |e: object::Error| InputError::new(input.name, &e.to_string(), help::NO_OBJECT);
        let archive = ArchiveFile::parse(input.data).map_err(fail)?;
        if archive.is_thin() {
            return Err(InputError::new(input.name, "a thin archive", help::THIN_ARCHIVE));
        }
        let mut group = SearchGroup::default();
        let mut by_offset = HashMap::new();
        let first = self.objects.len();
        for member in archive.members() {
            let member = member.map_err(fail)?;
            let name = format!("{}({})", input.name, String::from_utf8_lossy(member.name()));
            let data = member.data(input.data).map_err(fail)?;
            let index = self.add(name, data, input.role, true);
            // The symbol table holds offsets of member headers. A header has a fixed length; a name may follow it.
            by_offset.insert(member.file_range().0, index);
        }
        match archive.symbols().map_err(fail)? {
            Some(symbols) => {
                for symbol in symbols {
                    let symbol = symbol.map_err(fail)?;
                    let member = archive.member(symbol.offset()).map_err(fail)?;
                    let (Ok(name), Some(&index)) = (
                        std::str::from_utf8(symbol.name()),
                        by_offset.get(&member.file_range().0),
                    ) else {
                        continue;
                    };
                    for name in [name, without_version(name)] {
                        let objects: &mut Vec<usize> = group.definitions.entry(name).or_default();
                        if objects.last() != Some(&index) {
                            objects.push(index);
                        }
                    }
                }
            }
            None => {
                // Without a symbol table every member that is an object is read. Others hold metadata.
                for index in first..self.objects.len() {
                    let _ = self.index_object(index, &mut group);
                }
            }
        }
        for objects in group.definitions.values_mut() {
            objects.sort_unstable();
        }
        Ok(group)
    }

    /// An object, read on the first call.
    pub(crate) fn object(&self, index: usize) -> Result<&Object<'a>, &Unreadable> {
        let object = &self.objects[index];
        object
            .object
            .get_or_init(|| Object::parse(object.name.clone(), object.data))
            .as_ref()
    }

    /// The source line of an offset in an object, if the object has debug information.
    pub(crate) fn line(&self, index: usize, section: usize, offset: u64) -> Option<String> {
        let object = &self.objects[index];
        object
            .lines
            .get_or_init(|| Lines::read(object.data))
            .as_ref()?
            .at(section, offset)
    }

    /// The helper that defines a function of this name in C++, whose symbol is another one: its name, and the function's.
    pub(crate) fn cxx_helper(&self, function: &str) -> Option<(&str, String)> {
        let mangled = format!("_Z{}{function}", function.len());
        self.objects
            .iter()
            .filter(|object| object.role == Role::Helper)
            .find_map(|helper| {
                let object = helper.object.get()?.as_ref().ok()?;
                let symbol = object
                    .globals
                    .keys()
                    .find(|symbol| symbol.starts_with(&mangled))?;
                Some((&*helper.name, demangle(symbol)))
            })
    }

    /// Number of objects, members of archives included.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The origin of an object.
    pub(crate) fn role(&self, index: usize) -> Role {
        self.objects[index].role
    }

    /// Whether an object is a member of an archive.
    pub(crate) fn is_archive_member(&self, index: usize) -> bool {
        self.objects[index].is_archive_member
    }

    /// The place of an object in an image. It does not depend on roles, which differ among the ifuncs of one image.
    pub(crate) fn place(&self, index: usize) -> (usize, usize) {
        (self.objects[index].place, index)
    }

    /// Name of an object.
    pub(crate) fn name(&self, index: usize) -> &str {
        &self.objects[index].name
    }

    /// Bytes of an object.
    pub(crate) fn data(&self, index: usize) -> &'a [u8] {
        self.objects[index].data
    }

    /// The definition of `name` that wins: strong before common before weak, then the first. Later groups are searched only
    /// if nothing was found, or for a strong definition that replaces a common symbol.
    pub(crate) fn definition(&self, name: &str) -> Result<Option<Definition>, (&str, &Unreadable)> {
        let mut common = None;
        for group in &self.groups {
            let mut best: Option<(u8, Definition)> = None;
            for &index in group.definitions.get(name).map_or(&[][..], |objects| objects) {
                let object = self.object(index).map_err(|e| (self.name(index), e))?;
                let Some(&symbol) = object.globals.get(name) else {
                    continue;
                };
                let rank = match object.symbols[symbol] {
                    s if s.weak => 2,
                    Symbol {
                        place: Location::Common { .. },
                        ..
                    } => 1,
                    _ => 0,
                };
                let definition = Definition {
                    object: index,
                    symbol,
                    rival: None,
                };
                match &mut best {
                    Some((0, best)) if rank == 0 => {
                        if !self.is_archive_member(index) && !self.are_copies(best, &definition) {
                            best.rival.get_or_insert(index);
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

    /// Whether two definitions are in COMDAT groups of one signature: copies of each other.
    pub(crate) fn are_copies(&self, one: &Definition, other: &Definition) -> bool {
        let group = |of: &Definition| {
            let object = self.object(of.object).ok()?;
            match object.symbols[of.symbol].place {
                Location::Section { index, .. } => object.sections[index].group,
                _ => None,
            }
        };
        group(one).is_some_and(|signature| group(other) == Some(signature))
    }

    /// The objects `given`, and all that they and `roots` refer to, directly or not, as an ordinary linker finds them. A weak
    /// reference extracts no member of an archive.
    pub(crate) fn closure<'n>(&'n self, given: BTreeSet<usize>, roots: &'n [String]) -> BTreeSet<usize> {
        let mut found = given;
        let mut open: Vec<usize> = found.iter().copied().collect();
        let mut seen = HashSet::new();
        let roots = roots.iter().map(|root| (&**root, false)).collect();
        let mut wanted: Vec<(&str, bool)> = roots;
        loop {
            for (name, weak) in wanted.drain(..) {
                if let Ok(Some(definition)) = self.definition(name)
                    && !(weak && self.is_archive_member(definition.object))
                    && found.insert(definition.object)
                {
                    open.push(definition.object);
                }
            }
            let Some(object) = open.pop() else {
                return found;
            };
            let symbols = self.object(object).map_or(&[][..], |object| &object.symbols);
            let undefined = symbols
                .iter()
                .filter(|s| !s.local && s.place == Location::Undefined);
            let names = undefined.map(|s| (s.name, s.weak));
            wanted.extend(names.filter(|&reference| seen.insert(reference)));
        }
    }

    /// The members of archives that an ordinary linker extracts for a program of `roots`.
    pub(crate) fn extracted_members(&self, roots: &[String]) -> BTreeSet<usize> {
        let objects = (0..self.objects.len()).filter(|&index| !self.is_archive_member(index));
        let mut found = self.closure(objects.collect(), roots);
        found.retain(|&index| self.is_archive_member(index));
        found
    }

    /// Size and alignment of a common symbol: the largest of all objects.
    pub(crate) fn common_extent(&self, name: &str) -> (u64, u64) {
        let mut extent = (0, 1);
        for group in &self.groups {
            for &index in group.definitions.get(name).map_or(&[][..], |objects| objects) {
                let Ok(object) = self.object(index) else { continue };
                if let Some(&symbol) = object.globals.get(name)
                    && let Location::Common { size, align } = object.symbols[symbol].place
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
