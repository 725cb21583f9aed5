//! The host's part of the SDK: what `#[ifunc::export]` registers, and the call gate. Images do not contain it.

use core::any::{Any, TypeId};
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::borrow::ToOwned;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::vec::Vec;

use ifunc_abi::text::Text;

pub use crate::opaque::NamedType;
use crate::payload::TargetArgs;

/// What an [`Export`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportKind {
    /// A function.
    Function,
    /// A variable.
    Data,
}

/// A type of the host.
#[derive(Clone, Copy, Debug)]
pub struct HostType {
    id: fn() -> TypeId,
    name: fn() -> &'static str,
}

impl HostType {
    /// The type `H`.
    #[must_use]
    pub const fn of<H: 'static>() -> Self {
        Self {
            id: TypeId::of::<H>,
            name: core::any::type_name::<H>,
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> TypeId {
        (self.id)()
    }

    /// Its name, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        (self.name)()
    }
}

impl PartialEq for HostType {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for HostType {}

/// A function or a variable of the host that ifuncs may import.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    name: &'static str,
    signature: &'static str,
    prototype: &'static str,
    address: *const (),
    kind: ExportKind,
    method_of: Option<HostType>,
    types: &'static [fn() -> Option<NamedType>],
    earlier: fn() -> Vec<String>,
}

impl Export {
    /// Describes a host function. `#[ifunc::export]` calls it.
    ///
    /// # Safety
    /// `address` is the address of a function with this `prototype`, which is the C form of `signature`. If the signature
    /// names opaque types, [`with_types`](Self::with_types) is called with all of them.
    #[must_use]
    pub const unsafe fn function(
        name: &'static str,
        signature: &'static str,
        prototype: &'static str,
        address: *const (),
    ) -> Self {
        Self {
            name,
            signature,
            prototype,
            address,
            kind: ExportKind::Function,
            method_of: None,
            types: &[],
            earlier: no_earlier,
        }
    }

    /// Describes a method of an interface, whose first argument is a pointer to a `host`. `#[ifunc::interface]` calls it.
    ///
    /// # Safety
    /// As [`function`](Self::function), with a pointer to a `host` for `self`.
    #[must_use]
    pub const unsafe fn method(
        name: &'static str,
        signature: &'static str,
        prototype: &'static str,
        address: *const (),
        host: HostType,
    ) -> Self {
        Self {
            method_of: Some(host),
            // SAFETY: the caller's promise.
            ..unsafe { Self::function(name, signature, prototype, address) }
        }
    }

    /// Describes a host variable. `#[ifunc::export]` calls it.
    ///
    /// # Safety
    /// `address` is the address of a variable with this `declaration`, which is the C form of `signature`. Every
    /// access that `signature` permits to safe code is sound. If its type is opaque, [`with_types`](Self::with_types) is called
    /// with it.
    #[must_use]
    pub const unsafe fn data(
        name: &'static str,
        signature: &'static str,
        declaration: &'static str,
        address: *const (),
    ) -> Self {
        Self {
            name,
            signature,
            prototype: declaration,
            address,
            kind: ExportKind::Data,
            method_of: None,
            types: &[],
            earlier: no_earlier,
        }
    }

    /// States which types of this process the names in the signature stand for. `#[ifunc::export]` calls it.
    #[must_use]
    pub const fn with_types(self, types: &'static [fn() -> Option<NamedType>]) -> Self {
        Self { types, ..self }
    }

    /// States the signatures that it had in earlier builds, as which images may still import it. `#[ifunc::export]` calls it.
    ///
    /// # Safety
    /// `address` is the address of what each of them describes, too.
    #[must_use]
    pub const unsafe fn with_earlier(self, earlier: fn() -> Vec<String>) -> Self {
        Self { earlier, ..self }
    }

    /// The symbol that images import.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Canonical text of its signature.
    #[must_use]
    pub const fn signature(&self) -> &'static str {
        self.signature
    }

    /// Canonical texts of its signature in earlier builds: what it lends had fewer fields then
    /// ([`#[layout(grows)]`](macro@crate::Layout)).
    #[must_use]
    pub fn earlier_signatures(&self) -> Vec<String> {
        (self.earlier)()
    }

    /// The C prototype of the shim or the C declaration of the variable, for display.
    #[must_use]
    pub const fn prototype(&self) -> &'static str {
        self.prototype
    }

    /// Address of the generated C shim, or of the variable.
    #[must_use]
    pub const fn address(&self) -> *const () {
        self.address
    }

    /// The types of this process that its signature names: its opaque types.
    pub fn types(&self) -> impl Iterator<Item = NamedType> {
        self.types.iter().filter_map(|named| named())
    }

    /// Function or variable.
    #[must_use]
    pub const fn kind(&self) -> ExportKind {
        self.kind
    }

    /// The host type whose method it is: its first argument is a pointer to one. `None`: it is no method of an interface.
    #[must_use]
    pub const fn method_of(&self) -> Option<HostType> {
        self.method_of
    }
}

// SAFETY: an `Export` is immutable, and nothing is accessed through its address but by images, which `unsafe` code
// accepted.
unsafe impl Sync for Export {}
// SAFETY: as above.
unsafe impl Send for Export {}

/// [`Export::earlier_signatures`] of an export that lends nothing.
#[doc(hidden)]
#[must_use]
pub fn no_earlier() -> Vec<String> {
    Vec::new()
}

/// Signatures with the text of an earlier version of a type in place of the part `at`.
#[doc(hidden)]
#[must_use]
pub fn earlier_texts(parts: &[&str], at: usize, versions: &[&str]) -> Vec<String> {
    let versions = versions.iter().filter(|text| !text.is_empty());
    let signature = |text: &&str| {
        let parts = parts.iter().enumerate();
        parts
            .map(|(i, part)| if i == at { *text } else { *part })
            .collect()
    };
    versions.map(signature).collect()
}

/// Every `#[ifunc::export]` function and variable linked into this process: the default set of a target.
#[linkme::distributed_slice]
#[linkme(crate = linkme)]
pub static EXPORTS: [Export];

/// The interface `Self`, which is a `dyn Trait` of `#[ifunc::interface]`, exported by the host type `H`. The attribute
/// implements it for every `H` that implements the trait.
///
/// # Safety
/// [`METHODS`](Self::METHODS) are the methods of the interface for `H`: each takes a pointer to an `H` as its first
/// argument.
#[diagnostic::on_unimplemented(
    message = "`{H}` does not export the interface `{Self}`",
    label = "no implementation of this interface",
    note = "help: put `#[ifunc::interface]` on the trait, implement it for `{H}`, and name it with `dyn`: `dyn Kv`"
)]
pub unsafe trait Interface<H: 'static>: TargetArgs {
    /// The methods in the order of the trait.
    const METHODS: &'static [Export];
}

/// An interface as one host type exports it.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceExport {
    interface: &'static Text,
    host: HostType,
    methods: &'static [Export],
}

impl InterfaceExport {
    /// The interface `I` of the host type `H`.
    #[must_use]
    pub const fn of<I: Interface<H> + ?Sized, H: 'static>() -> Self {
        Self {
            interface: const { &<I as TargetArgs>::TEXT },
            host: HostType::of::<H>(),
            methods: I::METHODS,
        }
    }

    /// The canonical text that names the interface: the target text of the ifuncs that take it.
    #[must_use]
    pub const fn interface(&self) -> &'static str {
        self.interface.as_str()
    }

    /// The host type. The methods take pointers to values of this type, and of no other.
    #[must_use]
    pub const fn host(&self) -> HostType {
        self.host
    }

    /// One export per method.
    #[must_use]
    pub const fn methods(&self) -> &'static [Export] {
        self.methods
    }
}

/// Every `#[ifunc::export] impl` linked into this process. A target exports those interfaces that one type only exports
/// in this process; its builder chooses among several, and adds those of generic types.
#[linkme::distributed_slice]
#[linkme(crate = linkme)]
pub static INTERFACES: [InterfaceExport];

/// Which type of this process each name stands for. A name stands for one type, for as long as this lives.
#[derive(Clone, Debug, Default)]
pub struct NamedTypes {
    known: Vec<(NamedType, String)>,
}

/// Two types of this process have one name, by which ifuncs know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameConflict {
    text: &'static str,
    types: [&'static str; 2],
    users: [String; 2],
}

impl NamedTypes {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { known: Vec::new() }
    }

    /// Notes that `user`, for messages, uses the type by its name.
    ///
    /// # Errors
    /// The name stands for another type.
    pub fn add(&mut self, named: NamedType, user: &str) -> Result<(), NameConflict> {
        let Some((known, known_user)) = self.known.iter().find(|(known, _)| known.text() == named.text())
        else {
            self.known.push((named, user.to_owned()));
            return Ok(());
        };
        if known.id() == named.id() {
            return Ok(());
        }
        Err(NameConflict {
            text: named.text(),
            types: [known.type_name(), named.type_name()],
            users: [known_user.clone(), user.to_owned()],
        })
    }
}

impl core::fmt::Display for NameConflict {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            text,
            types: [known, other],
            users: [known_user, user],
        } = self;
        let name = text.strip_prefix("opaque ").unwrap_or(text);
        write!(
            f,
            "the opaque name `{name}` stands for two types\n  `{known}`: {known_user}\n  `{other}`: {user}\nhelp: let all of them use \
             one type, or give each type its own name in `#[opaque(\"..\")]`; what a target exports of its process, \
             `TargetBuilder::exports` chooses"
        )
    }
}

impl core::error::Error for NameConflict {}

/// The runtime's hooks at the boundary between injected code and host functions. The generated shims call
/// them around each host function, so that arguments and results stay in registers.
#[derive(Debug)]
pub struct CallGate {
    /// Switches to the host's stack. With too little stack left for a host function, it ends the invocation
    /// instead and does not return; the frames of the shim own nothing at that point.
    pub enter: fn() -> GateToken,
    /// Switches back to the injected code, or ends the invocation if a callback panicked: then it does not return.
    ///
    /// # Safety
    /// Called after `enter`, on the same thread, with the token that `enter` returned, unless that is
    /// [`GateToken::NONE`].
    pub leave: unsafe fn(token: GateToken),
    /// Ends the invocation after the host function panicked.
    ///
    /// # Safety
    /// Called after `enter`, by a shim that owns nothing but the payload.
    pub panicked: unsafe fn(payload: Box<dyn Any + Send>) -> !,
    /// Calls `call(data)` on the ifunc's side: a host function calls injected code back. The result says whether it
    /// returned.
    ///
    /// # Safety
    /// `call` may be called with `data`. Injected code that it calls may leave it by a jump: it owns nothing.
    pub call_back: unsafe fn(call: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> CallBack,
    /// Keeps an object for the invocation of this thread that waits for a host function, until the invocation gives it up or ends early.
    /// Without one, returns the object.
    pub hold: fn(HeldObject) -> Result<(), HeldObject>,
    /// Gives up an object that such an invocation holds.
    pub take_held: fn(NonNull<c_void>) -> Option<HeldObject>,
}

/// An object of the host that an invocation holds: see [`Owned`](crate::Owned). Dropped, it drops the object.
#[derive(Debug)]
pub struct HeldObject {
    pointer: NonNull<c_void>,
    drop: unsafe fn(*mut c_void),
}

// SAFETY: `HeldObject::new` was promised that it is dropped on a thread on which that is allowed.
unsafe impl Send for HeldObject {}

impl HeldObject {
    /// The object that `drop(pointer)` drops.
    ///
    /// # Safety
    /// That may be called once, on the thread of the caller; what receives the result keeps it on that thread.
    #[must_use]
    pub unsafe fn new(pointer: NonNull<c_void>, drop: unsafe fn(*mut c_void)) -> Self {
        Self { pointer, drop }
    }

    /// Whether this is the object at `pointer`.
    #[must_use]
    pub fn is(&self, pointer: NonNull<c_void>) -> bool {
        self.pointer == pointer
    }

    /// Does not drop the object: it has another owner.
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl Drop for HeldObject {
    fn drop(&mut self) {
        // SAFETY: `new` was promised that it may be called once.
        unsafe { (self.drop)(self.pointer.as_ptr()) }
    }
}

/// Keeps an object for the invocation that waits for a host function: see [`CallGate::hold`].
///
/// # Errors
/// There is no such invocation.
pub fn hold(object: HeldObject) -> Result<(), HeldObject> {
    // SAFETY: the pointer is null or comes from the `&'static CallGate` of `set_call_gate`.
    match unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() } {
        Some(gate) => (gate.hold)(object),
        None => Err(object),
    }
}

/// Gives up an object that the invocation holds: see [`CallGate::take_held`].
#[must_use]
pub fn take_held(pointer: NonNull<c_void>) -> Option<HeldObject> {
    // SAFETY: as above.
    let gate = unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() }?;
    (gate.take_held)(pointer)
}

/// What became of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBack {
    /// It returned.
    Returned,
    /// It panicked, or one of this invocation did before: the invocation ends when the host function has returned.
    Aborted,
    /// It was not called: no invocation of this thread waits for a host function.
    NoInvocation,
}

/// The state that [`CallGate::enter`] saves for [`CallGate::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateToken(u64);

impl GateToken {
    /// The gate was not passed: the caller is the host, not injected code.
    pub const NONE: Self = Self(u64::MAX);

    /// Wraps a word of the runtime, which must not be `u64::MAX`.
    #[must_use]
    pub const fn new(word: u64) -> Self {
        Self(word)
    }

    /// The runtime's word.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }
}

static CALL_GATE: AtomicPtr<CallGate> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the runtime's call gate, once per process.
pub fn set_call_gate(gate: &'static CallGate) {
    CALL_GATE.store((&raw const *gate).cast_mut(), Ordering::Release);
}

/// Runs `call` on the host's side of the call gate. Without a runtime or an injected caller, it runs `call`
/// directly. The shims of exports call it.
#[inline]
pub fn through_gate<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: the pointer is null or comes from the `&'static CallGate` of `set_call_gate`.
    let gate = unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() };
    let entered = gate.map(|gate| (gate, (gate.enter)()));
    let Some((gate, token)) = entered.filter(|(_, token)| *token != GateToken::NONE) else {
        return call();
    };
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => {
            // SAFETY: `enter` above returned this token, which is not `NONE`.
            unsafe { (gate.leave)(token) };
            result
        }
        // SAFETY: `enter` was called above; the call has unwound and dropped everything it owned.
        Err(payload) => unsafe { (gate.panicked)(payload) },
    }
}

/// Runs `call`, which calls a function of the ifunc, on the ifunc's side of the call gate. `None`: it panicked, or a
/// callback of this invocation did before. Without a runtime or an invocation, it runs `call` directly. The shims of
/// exports call it.
#[inline]
pub fn call_back<R>(call: impl FnOnce() -> R) -> Option<R> {
    struct Frame<F, R> {
        call: Option<F>,
        result: Option<R>,
    }
    unsafe extern "C" fn run<F: FnOnce() -> R, R>(frame: *mut c_void) {
        // SAFETY: `call_back` passes its frame.
        let frame = unsafe { &mut *frame.cast::<Frame<F, R>>() };
        frame.result = frame.call.take().map(|call| call());
    }
    fn runner<F: FnOnce() -> R, R>(_: &Frame<F, R>) -> unsafe extern "C" fn(*mut c_void) {
        run::<F, R>
    }

    // SAFETY: the pointer is null or comes from the `&'static CallGate` of `set_call_gate`.
    let Some(gate) = (unsafe { CALL_GATE.load(Ordering::Acquire).as_ref() }) else {
        return Some(call());
    };
    let mut frame = Frame {
        call: Some(call),
        result: None,
    };
    let runner = runner(&frame);
    // SAFETY: `runner` takes this frame. The closures of the shims own nothing: they hold borrows and C values.
    match unsafe { (gate.call_back)(runner, (&raw mut frame).cast()) } {
        CallBack::Returned => frame.result,
        CallBack::Aborted => None,
        CallBack::NoInvocation => frame.call.map(|call| call()),
    }
}
