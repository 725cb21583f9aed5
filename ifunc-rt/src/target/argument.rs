//! The target arguments of invocations, and which entries can run on them.

use std::any::TypeId;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use ifunc::host::{NameConflict, NamedType};
use ifunc::payload::TargetArgs;
use ifunc_abi::Fingerprint;
use ifunc_abi::image::EntryFlags;
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;
use ifunc_exec::runner::{Lent, MAX_TARGET, plain_size};
use ifunc_exec::{ImageExecutor, InstalledEntry, fingerprint};

/// The target arguments of invocations.
#[derive(Clone, Copy)]
pub(super) struct Argument {
    pub(super) target: *mut c_void,
    /// Describes their type.
    host_type: fn() -> HostType,
    /// Equal for target arguments that the same entries suit: a hash of their type, inverted if they are shared. Never 0.
    pub(super) key: u64,
}

/// The type of target arguments.
pub(super) struct HostType {
    pub(super) id: TypeId,
    pub(super) type_name: &'static str,
    /// Canonical text.
    pub(super) text: &'static str,
    /// Those of earlier versions of the type: see [`TargetArgs::EARLIER`].
    pub(super) earlier: &'static [&'static str],
    pub(super) named: Option<NamedType>,
}

impl HostType {
    pub(super) fn of<T: TargetArgs + 'static>() -> Self {
        Self {
            id: TypeId::of::<T>(),
            type_name: std::any::type_name::<T>(),
            text: const { T::TEXT.as_str() },
            earlier: T::EARLIER,
            named: T::named_type(),
        }
    }

    /// Lets images take values of this type by its opaque name, if it has one.
    ///
    /// # Errors
    /// Exports use another type by that name, or another one was served.
    pub(super) fn name(&self, executor: &ImageExecutor) -> Result<(), NameConflict> {
        self.named
            .map_or(Ok(()), |named| executor.name_type(named, "the target arguments"))
    }
}

/// A hash of a type, for [`Argument::new`].
pub(super) fn hash_of<T: 'static>() -> u64 {
    hash_of_id(&TypeId::of::<T>())
}

/// The same of what identifies a type.
pub(super) fn hash_of_id(id: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    // Neither the hash nor its inverse is 0, and the most significant bit tells them apart.
    hasher.finish() >> 1 | 1
}

impl Argument {
    /// Target arguments of a type of this [hash](hash_of).
    #[inline]
    pub(super) fn new<T: TargetArgs + 'static>(target: *mut T, hash: u64, shared: bool) -> Self {
        Self {
            target: target.cast(),
            host_type: HostType::of::<T>,
            key: if shared { !hash } else { hash },
        }
    }

    /// Target arguments behind a pointer, of a type that is not Rust's and has this [hash](hash_of_id).
    #[inline]
    pub(super) fn raw(target: *mut c_void, host_type: fn() -> HostType, hash: u64, shared: bool) -> Self {
        Self {
            target,
            host_type,
            key: if shared { !hash } else { hash },
        }
    }

    /// Whether several threads run invocations on them at the same time.
    pub(super) fn is_shared(&self) -> bool {
        self.key >> 63 != 0
    }

    /// Their type.
    pub(super) fn type_id(&self) -> TypeId {
        (self.host_type)().id
    }

    /// Whether an image takes arguments of this type, or an interface that this type exports here.
    pub(super) fn has_type(&self, executor: &ImageExecutor, target: Fingerprint) -> bool {
        let host_type = (self.host_type)();
        let is_same = || target == fingerprint::of(host_type.text) && host_type.name(executor).is_ok();
        let is_earlier = || {
            let mut versions = host_type.earlier.iter().filter(|text| !text.is_empty());
            versions.any(|text| target == fingerprint::of(text))
        };
        target == 0 || is_same() || is_earlier() || executor.interfaces().has(target, host_type.id)
    }

    /// What they are to an ifunc in a runner process.
    #[cold]
    pub(super) fn lent(&self) -> Lent {
        let text = (self.host_type)().text;
        let size = plain_size(text);
        match size.filter(|size| *size <= MAX_TARGET && !self.is_shared()) {
            Some(size) => Lent::Copied(size),
            None => Lent::Opaque {
                text,
                is_shared: self.is_shared(),
            },
        }
    }

    /// Refuses an image that takes them in a runner process, where it would not reach them.
    #[cold]
    pub(super) fn check_lent(&self, executor: &ImageExecutor) -> Result<(), Refusal> {
        let is_lent = match self.lent() {
            Lent::Copied(_) => true,
            Lent::Opaque { text, .. } => text.starts_with("opaque"),
        };
        if is_lent {
            return Ok(());
        }
        let help = if self.is_shared() {
            "this target runs ifuncs in processes of their own (`Level::Process`), on copies of the target arguments, and its threads share \
             these; help: let it `serve` on one thread, or serve `()`"
        } else {
            "this target runs ifuncs in processes of their own (`Level::Process`), which reach copies of integers, floats, and arrays and structs \
             of those without padding, at most 64 KiB, and opaque types by functions of the host; help: serve such a type, or at another level"
        };
        Err(self.refuse_type(executor, Some(help.to_owned())))
    }

    /// Whether an entry can run on them.
    #[cold]
    pub(super) fn suits(&self, executor: &ImageExecutor, entry: &InstalledEntry) -> bool {
        // It may have been bound while the target served on one thread, or another type.
        self.has_type(executor, entry.target)
            && self
                .admits_imports(executor, entry.image().import_names())
                .is_ok()
            && (!self.is_shared() || entry.flags.contains(EntryFlags::SHARED))
    }

    /// Refuses an image with these imports if one is a method for another type: only what its entries state as their target
    /// type, if anything, keeps the image from calling it with these target arguments.
    #[cold]
    pub(super) fn admits_imports<'a>(
        &self,
        executor: &ImageExecutor,
        imports: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Refusal> {
        let HostType {
            id, type_name: name, ..
        } = (self.host_type)();
        let interfaces = executor.interfaces();
        match interfaces.foreign_method(imports, id) {
            None => Ok(()),
            Some(symbol) => {
                let help = interfaces.explain_foreign(symbol, name);
                Err(self.refuse_type(executor, Some(help)))
            }
        }
    }

    /// Why an image that takes `target` is refused: the whole text of this type, which no peer chooses, the interfaces that
    /// it exports, and what to do where the target knows.
    #[cold]
    pub(super) fn wrong_target(&self, executor: &ImageExecutor, target: Fingerprint) -> Refusal {
        let host_type = (self.host_type)();
        let is_same = target == fingerprint::of(host_type.text);
        let conflict = host_type.name(executor).err().filter(|_| is_same);
        let help = conflict.map(|conflict| conflict.to_string());
        self.refuse_type(
            executor,
            help.or_else(|| executor.interfaces().explain(target, host_type.type_name)),
        )
    }

    fn refuse_type(&self, executor: &ImageExecutor, help: Option<String>) -> Refusal {
        let HostType { id, text, .. } = (self.host_type)();
        let interfaces = executor.interfaces();
        let mut detail = text.to_owned();
        for (i, interface) in interfaces.of(id).enumerate() {
            detail.push_str(if i == 0 { "; exports " } else { ", " });
            detail.push_str(interface);
        }
        if let Some(help) = help {
            detail.push('\n');
            detail.push_str(&help);
        }
        Refusal {
            reason: Rejection::TargetType,
            detail: detail.into(),
        }
    }
}
