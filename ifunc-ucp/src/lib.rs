//! The interface of the UCX ifunc systems of 2021 and 2022, over stock UCX, for the programs that were written for them.
//!
//! ```c
//! #include <ucp/api/ucp.h>                 /* cc -I PREFIX/include/ifunc/compat/threechains … -lucp_ifunc -lucp -lucs */
//!
//! ucp_ifunc_reg_param_t param = { .name = "add" };
//! ucp_ifunc_h add;
//! ucp_ifunc_msg_t msg;
//!
//! ucp_register_ifunc(context, param, &add);                            /* $UCX_IFUNC_LIB_DIR/add.so */
//! ucp_ifunc_msg_create(add, &delta, sizeof delta, &msg);               /* add_payload_bound, add_payload_init */
//! ucp_ifunc_send_nbix(ep, msg, remote_addr, rkey);                     /* one put of the frame, with its code */
//! …
//! ucp_poll_ifunc(context, buffer, buffer_size, &counter, worker);      /* on the target: add_main(payload, size, &counter) */
//! ```
//!
//! There were three variants of it, with the same names and different prototypes: those of the paper (Two-Chains), of its slides, and of
//! Three-Chains. Each has a folder of headers, `include/ifunc/compat/{paper,slides,threechains}`, whose `ucp/api/ucp.h` includes
//! UCX's own and gives the functions that differ names of their own. The headers are the reference of the functions.
//!
//! Ifuncs are built by `cargo ifunc build NAME.c`: the same sources, in either order of the arguments of `NAME_payload_init`. The
//! target needs no file: the code in the frame is what runs there. It imports what the process exports, and the shared libraries that its
//! build named (`--needed libz.so.1`) are opened. UCX must be the shared library `libucp.so.0`, 1.13 or later.
//!
//! # What the three systems left open
//!
//! | what | there | here |
//! |---|---|---|
//! | names | 7 characters, of which the rest was dropped | 255; a frame has no name: its code is found by its content |
//! | code that changed under a name | the target ran the old one | the target compares each frame's code with what it installed, byte by byte. A source reads the library when it registers, into memory of its own; after `ucp_deregister_ifunc` the name finds the new file |
//! | an endpoint at the address of an earlier one | Three-Chains remembered by address what it had sent code to; a new target waited for ever | no endpoint is remembered: each frame has its code |
//! | alignment of the payload | none | 32 bytes in the frame, or what the ifunc states, and frames are aligned to 64; in a buffer that is aligned to less, the payload is copied before it runs |
//! | the same `.so` on the target's disk | needed, and loaded by a name in the message | not needed |
//! | executable buffers | the whole buffer was writable and executable | frames never run where they lie: the first copy of the code is validated, relocated, and written into memory that is not writable |
//! | a half-written frame | the poll waited for its last byte, in a loop without end | `UCS_ERR_NO_MESSAGE` until it is whole |
//! | the order in which a put arrives | its last byte last, as few NICs promise | a sum of all of it: in any order. Over shared memory the source stores the frame itself, the mark last |
//! | a slot that is sent to before it is free | both messages mixed | the sum differs: `UCS_ERR_NO_MESSAGE`, and `UCS_ERR_CANCELED` after a second |
//! | what idle buffers hold | the marks were single bytes | a mark and a check of 8 bytes together, which no byte that programs fill with makes |
//! | lengths in a frame | trusted | compared with the buffer before anything else is read |
//! | a handle that was given back | an address of freed memory | never another handle; `UCS_ERR_NO_ELEM` |
//! | numbers of ifuncs and triples | 32 and 4 | 4096 per process, and any |
//! | a panic, `abort` or failed `assert` in `NAME_main` | ended the process | `UCS_ERR_CANCELED` and a line on the standard error |
//!
//! # What else differs for a program
//!
//! | what | there | here |
//! |---|---|---|
//! | `UCX_IFUNC_LIB_DIR` | one folder, 255 characters | of any length; a list with colons, too |
//! | files | `NAME.so`; Three-Chains also `NAME.<triple>.bc` and `NAME.deps` | `NAME.so` alone, whatever `llvm_bc` says: it has the image, and the image names its shared libraries |
//! | `ucp_register_ifunc` of Three-Chains finds no code for this machine | `UCS_ERR_NO_ELEM` | `UCS_ERR_IO_ERROR`, as for every library that is not there; the line on the standard error names the file |
//! | `pure` | the code imports nothing | no effect: an image states what it imports |
//! | statuses of the poll function | three, or four | `UCS_ERR_NO_RESOURCE`, too, when invocations are too deep inside of one another or there is no memory: the message waits. A program that loops until `UCS_OK` or `UCS_ERR_CANCELED` goes on |
//! | null pointers | a fault | `UCS_ERR_INVALID_PARAM`, or ignored |
//! | the frame | 20 or 24 bytes beside code and payload, of a form that programs could know | 48 bytes, and alignment; within the slots of all three systems |
//!
//! What their interface does not let us close: there is no authentication (`SECURITY.md`), no answer, and no report to the source of
//! a frame that was refused. A source that puts into a slot before it is free loses messages.
//!
//! # What a target does with a frame
//!
//! It reads the head, once, and compares its lengths with the buffer; it waits for the trailer, and compares the sum; it compares the
//! code with what it installed before, or installs it; it takes the frame out of the buffer; and then it runs the entry on the payload, which
//! stays in the buffer, on a stack of its own and by the call gate of `ifunc-exec`. Frames are described in `frame.rs`, what is kept in
//! `images.rs`.
//!
//! `NAME_main` may call `ucp_ifunc_send_nbix`, `ucp_ifunc_msg_get_payload_ptr` and all others of the interface; a function of the host that it
//! calls may make the worker progress, and poll again.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod c;
mod doubt;
mod frame;
#[cfg(fuzzing)]
pub mod fuzzing;
mod images;
mod message;
mod poll;
mod prefetch;
mod registry;
mod report;
mod slot;
mod storing;
mod sum;
