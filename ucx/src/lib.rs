//! A safe, owning layer over [UCX](https://openucx.org), the communication library of high-performance networks.
//!
//! UCX is found at run time ([`Library::load`]); nothing has to be installed to build this crate.
//!
//! ```
//! use ucx::{Features, Handler, Library, Message, Operation, Operations, Worker};
//!
//! /// What this program does with its messages.
//! #[derive(Default)]
//! struct Last(Vec<u8>);
//!
//! impl Handler for Last {
//!     type Tag = ();
//!     fn message(&mut self, _: &mut ucx::Callback<'_, Self>, message: Message<'_>) {
//!         self.0.resize(message.len(), 0);
//!         message.copy_to(&mut self.0);
//!     }
//! }
//!
//! # let Ok(_) = Library::load() else { return Ok(()) };
//! let ucx = Library::load()?;
//! let context = ucx.context(&ucx.config()?, Features::AM)?;
//! let mut worker: Worker<Last> = context.worker(Last::default())?;
//! worker.receive(5)?;
//! // SAFETY: the address is that of a worker of this process.
//! let endpoint = unsafe { worker.connect_to_worker(&worker.address()?, Default::default())? };
//! let message = Operation::Message { endpoint: &endpoint, id: 5, header: 0..0, data: 0..5, flags: Default::default() };
//! let sent = worker.start(message, b"hello")?;
//! while worker.handler().0.is_empty() {
//!     worker.progress();
//! }
//! assert_eq!(worker.handler().0, b"hello");
//! # drop(sent);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads
//!
//! A [`Worker`] is the token of the thread that holds it: it is [`Send`] but not [`Sync`], and everything that touches the worker
//! takes it. [`Endpoint`], [`Memory`], [`RemoteMemory`] and [`Request`] are keys: they may be kept, moved and
//! dropped on any thread, and do nothing without the token. One that is dropped is ended by its worker at its next
//! [`progress`](Worker::progress). A key that is used with another worker than its own panics.
//!
//! UCX calls the [`Handler`] while the worker is used. The handler gets a [`Callback`], by which it may begin operations, but
//! not progress: a worker cannot be re-entered.
//!
//! ```compile_fail
//! # use ucx::{Callback, Handler, Message, Worker};
//! # struct Mine;
//! # impl Handler for Mine {
//! #     type Tag = ();
//! fn message(&mut self, worker: &mut Callback<'_, Self>, _: Message<'_>) {
//!     worker.progress(); // a callback cannot
//! }
//! # }
//! ```
//!
//! ```compile_fail
//! # use ucx::{Handler, Worker};
//! fn both<H: Handler + Send>(worker: &Worker<H>) {
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| worker.address()); // another thread cannot
//!     });
//! }
//! ```
//!
//! # Memory
//!
//! A buffer that UCX reads or writes belongs to the operation until it ends: [`Operations::start`] gives it back with the
//! [`Request`], [`Operations::post`] with [`Handler::completed`]. Memory that peers write ([`Memory`]) is read through atomics
//! and copies only.
//!
//! # Trust
//!
//! UCX believes its peers: over TCP and shared memory it writes where a peer's message says, and UCX 1.13 aborts the process on
//! some bytes that are not its own. This crate keeps the safety promises of Rust for peers that are UCX. What is received by
//! other means and given to UCX (addresses of workers, keys of memory) is given to `unsafe` functions.
//!
//! # What UCX does unexpectedly
//!
//! | UCX | this crate |
//! |---|---|
//! | an operation that completes at once returns no request and calls no callback | [`Begun::Done`] |
//! | data may be unaligned unless [`Context::am_alignment`] is set | [`Message::is_aligned`] |
//! | callbacks run while a worker is destroyed | the handler is not called any more |
//! | a message to the own worker arrives inside of the call that sends it | the handler is called then, or after the callback that sent it |
//! | signal handlers are installed when UCX is loaded | put back by [`ucx_sys`] |

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod buffer;
mod callbacks;
mod endpoint;
mod handler;
mod inner;
mod library;
mod memory;
mod message;
mod operation;
mod shared;
mod worker;

pub use buffer::{Buffer, Bytes, OperationId};
pub use endpoint::{Endpoint, EndpointId, ErrorMode};
pub use handler::{Callback, Handler, HandlerGuard};
pub use library::{Config, Context, Error, Features, Library};
pub use memory::{Memory, Remote, RemoteMemory};
pub use message::{Kept, Message, Readable, Rendezvous};
pub use operation::{Begun, Flags, Operation, Operations, Posted, Request, Started};
pub use worker::{Attributes, Mode, Multi, Serialized, Single, Worker};

pub use ucx_sys::{LoadError, Status, Version};

/// UCX's handles, for programs that have their own.
pub mod raw {
    pub use ucx_sys::{ucp_context_h, ucp_ep_h, ucp_worker_h};
}

/// UCX's statuses, as [`Status::code`] has them.
pub mod code {
    pub use ucx_sys::{
        UCS_ERR_ALREADY_EXISTS, UCS_ERR_BUSY, UCS_ERR_CANCELED, UCS_ERR_CONNECTION_RESET,
        UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_EXCEEDS_LIMIT, UCS_ERR_IO_ERROR, UCS_ERR_MESSAGE_TRUNCATED,
        UCS_ERR_NO_MEMORY, UCS_ERR_NOT_CONNECTED, UCS_ERR_REJECTED, UCS_ERR_SHMEM_SEGMENT,
        UCS_ERR_UNREACHABLE, UCS_ERR_UNSUPPORTED,
    };
}
