//! Active messages that have arrived.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use ucx_sys::{
    UCP_AM_RECV_ATTR_FIELD_REPLY_EP, UCP_AM_RECV_ATTR_FLAG_DATA, UCP_AM_RECV_ATTR_FLAG_RNDV, UCS_INPROGRESS,
    ucp_am_recv_param_t, ucs_status_t,
};

use crate::endpoint::EndpointId;
use crate::shared::Handle;

/// An active message, as the handler gets it.
///
/// Its bytes may be in memory that the peer can write: they are copied, and no reference to them is made.
pub struct Message<'a> {
    pub(crate) id: u16,
    pub(crate) worker: u64,
    pub(crate) header: *const u8,
    pub(crate) header_len: usize,
    pub(crate) data: *mut c_void,
    pub(crate) len: usize,
    pub(crate) param: &'a ucp_am_recv_param_t,
    /// Those of `param`: what they say is asked for several times, between which memory is written.
    pub(crate) attributes: u64,
    /// The callback's result: whether the data stay.
    pub(crate) verdict: &'a mut ucs_status_t,
    pub(crate) bytes: PhantomData<&'a [u8]>,
}

/// Data of a message that UCX keeps.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) worker: u64,
    pub(crate) data: Handle<c_void>,
    pub(crate) len: usize,
}

/// Data of a message that stay where UCX received them until they are [released](crate::Operations::release).
#[derive(Debug)]
#[must_use = "UCX keeps the memory until it is released"]
pub struct Kept(pub(crate) Data);

/// Data of a message that are still the sender's. [`Operation::Fetch`](crate::Operation::Fetch) gets them;
/// [`discard`](crate::Operations::discard) leaves them.
#[derive(Debug)]
#[must_use = "the sender waits until the data are fetched or discarded"]
pub struct Rendezvous(pub(crate) Data);

/// The data of a message, where UCX has them during the callback. They may be in memory that the peer can write: they are copied, and no
/// reference to them is made.
#[derive(Clone, Copy, Debug)]
pub struct Readable<'a> {
    at: *const u8,
    len: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl Readable<'_> {
    /// Those of a message with these attributes; `None` where they have to be fetched.
    #[inline(always)]
    pub(crate) fn new(attributes: u64, data: *mut c_void, len: usize) -> Option<Self> {
        (attributes & u64::from(UCP_AM_RECV_ATTR_FLAG_RNDV) == 0).then_some(Self {
            at: data.cast_const().cast(),
            len,
            bytes: PhantomData,
        })
    }

    /// How many bytes there are.
    #[must_use]
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Copies data from an offset on.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn copy_from(self, offset: usize, to: &mut [u8]) {
        let len = self.len;
        let fits = len.checked_sub(offset).is_some_and(|left| to.len() <= left);
        assert!(fits, "{len} bytes of data");
        // SAFETY: the data are readable for their length during the callback; `to` is nowhere else.
        unsafe { copy(self.at.wrapping_add(offset), to) };
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("header_len", &self.header_len)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Message<'_> {
    /// The id that it was sent with.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Length of the header.
    #[must_use]
    #[inline]
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// Copies the beginning of the header.
    ///
    /// # Panics
    /// If it is shorter than `to`.
    #[inline]
    pub fn copy_header(&self, to: &mut [u8]) {
        assert!(
            to.len() <= self.header_len,
            "a header of {} bytes",
            self.header_len
        );
        // SAFETY: UCX's header is readable for its length during the callback; `to` is nowhere else.
        unsafe { copy(self.header, to) };
    }

    /// Length of the data.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn has(&self, attribute: u32) -> bool {
        self.attributes & u64::from(attribute) != 0
    }

    /// Whether the data are still the sender's, and have to be fetched.
    #[must_use]
    #[inline]
    pub fn is_rendezvous(&self) -> bool {
        self.has(UCP_AM_RECV_ATTR_FLAG_RNDV)
    }

    /// Whether the data begin at a multiple of `align`.
    #[must_use]
    #[inline]
    pub fn is_aligned(&self, align: usize) -> bool {
        self.data.addr().is_multiple_of(align)
    }

    /// Copies the beginning of the data.
    ///
    /// # Panics
    /// If they are shorter than `to`, or [have to be fetched](Self::is_rendezvous).
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) {
        let data = Readable::new(self.attributes, self.data, self.len);
        let data = data.expect("the data have to be fetched");
        data.copy_from(0, to);
    }

    /// The data where UCX has them; none if they [have to be fetched](Self::is_rendezvous).
    ///
    /// # Safety
    /// The peer does not write what it has sent, for as long as the result is used. (Over shared memory it can.)
    #[must_use]
    #[inline]
    pub unsafe fn as_slice(&self) -> &[u8] {
        if self.len == 0 || self.is_rendezvous() {
            return &[];
        }
        // SAFETY: readable for their length during the callback, which outlives `self`; unchanged by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.len) }
    }

    /// The endpoint that leads back to the sender, if the message says so ([`Flags::REPLY`](crate::Flags::REPLY)).
    #[must_use]
    #[inline]
    pub fn sender(&self) -> Option<EndpointId> {
        self.has(UCP_AM_RECV_ATTR_FIELD_REPLY_EP)
            .then(|| EndpointId::new(self.param.reply_ep))
            .flatten()
    }

    /// Whether [`keep`](Self::keep) keeps the data.
    #[must_use]
    #[inline]
    pub fn may_be_kept(&self) -> bool {
        self.has(UCP_AM_RECV_ATTR_FLAG_DATA) && !self.is_rendezvous()
    }

    /// Keeps the data where they are.
    ///
    /// # Errors
    /// The message itself: its data are UCX's for this call alone, or have to be fetched.
    #[inline]
    pub fn keep(self) -> Result<Kept, Self> {
        if !self.may_be_kept() {
            return Err(self);
        }
        Ok(Kept(self.take()))
    }

    /// Makes UCX keep the data.
    #[inline]
    fn take(self) -> Data {
        *self.verdict = UCS_INPROGRESS;
        Data {
            worker: self.worker,
            data: Handle(self.data),
            len: self.len,
        }
    }

    /// The data, to be fetched.
    ///
    /// # Errors
    /// The message itself: its data are here.
    #[inline]
    pub fn rendezvous(self) -> Result<Rendezvous, Self> {
        if !self.is_rendezvous() {
            return Err(self);
        }
        Ok(Rendezvous(self.take()))
    }
}

impl Kept {
    /// The data, until they are released or the worker ends.
    #[must_use]
    pub fn as_ptr(&self) -> *const [u8] {
        std::ptr::slice_from_raw_parts(self.0.data.0.cast_const().cast(), self.0.len)
    }
}

impl Rendezvous {
    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }
}

/// Copies without a reference to what is copied: over shared memory the peer can write it.
///
/// # Safety
/// `from` is readable for the length of `to`, unless that is 0.
#[inline]
unsafe fn copy(from: *const u8, to: &mut [u8]) {
    const WORD: usize = size_of::<u64>();
    let (len, to) = (to.len(), to.as_mut_ptr());
    if (WORD..=2 * WORD).contains(&len) {
        // The first word and the last one, which may overlap: a call of `memcpy` would take longer.
        let last = len - WORD;
        // SAFETY: the caller's promise: both words lie in the `len` bytes. What is behind a mutable reference is nowhere else.
        unsafe {
            let words = (
                from.cast::<u64>().read_unaligned(),
                from.add(last).cast::<u64>().read_unaligned(),
            );
            to.cast::<u64>().write_unaligned(words.0);
            to.add(last).cast::<u64>().write_unaligned(words.1);
        }
    } else if len > 0 {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
}
