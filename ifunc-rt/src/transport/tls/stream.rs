//! TLS over a non-blocking socket.

use std::io::{self, BufRead as _, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustls::pki_types::CertificateDer;
use rustls::server::{Acceptor, ClientHello};
use rustls::{Connection, Error, ServerConfig};

use super::credentials::{PROTOCOL, Proof};

/// Bytes taken from a socket at a time: a record, and a little more.
const CHUNK: usize = 17 << 10;
/// Most chunks in a row: what a peer sends meanwhile waits until the next poll.
const CHUNKS: usize = 16;

/// Why nothing more arrives.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// The peer said that it closes the stream.
    Closed,
    /// The socket ended, and the stream did not.
    Cut,
    /// TLS refused what arrived.
    Tls(Error),
    /// What was in the records is not of the protocol.
    Malformed(&'static str),
}

/// TLS, without its socket.
pub(super) struct Stream(Connection);

impl Stream {
    pub(super) fn new(tls: impl Into<Connection>) -> Self {
        let mut tls = tls.into();
        // Credits bound what is written, or the caller ends a connection that has a backlog.
        tls.set_buffer_limit(None);
        Self(tls)
    }

    /// Whether both sides have proved their keys.
    pub(super) fn is_established(&self) -> bool {
        !self.0.is_handshaking()
    }

    /// What the peer has proved to hold. `None`: it proved nothing, or speaks another protocol.
    pub(super) fn peer(&self) -> Option<Proof> {
        let is_ours = self.is_established() && self.0.alpn_protocol() == Some(PROTOCOL);
        let sent: &[CertificateDer<'_>] = self.0.peer_certificates().filter(|_| is_ours)?;
        Proof::of(sent)
    }

    /// The cipher suite, for people.
    pub(super) fn suite(&self) -> String {
        let suite = self.0.negotiated_cipher_suite();
        suite.map_or_else(String::new, |suite| format!("{:?}", suite.suite()))
    }

    /// Takes what has arrived, a bounded number of bytes, and calls `take` with what was encrypted.
    ///
    /// # Errors
    /// The stream has ended. What arrived before was taken.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        take: impl FnMut(&[u8]) -> Result<(), &'static str>,
    ) -> Result<(), End> {
        self.receive_chunks(socket, CHUNKS, take)
    }

    /// As [`receive`](Self::receive), a record and a little more.
    #[cfg(feature = "ucx")]
    pub(super) fn receive_little(
        &mut self,
        socket: BorrowedFd<'_>,
        take: impl FnMut(&[u8]) -> Result<(), &'static str>,
    ) -> Result<(), End> {
        self.receive_chunks(socket, 1, take)
    }

    fn receive_chunks(
        &mut self,
        socket: BorrowedFd<'_>,
        chunks: usize,
        mut take: impl FnMut(&[u8]) -> Result<(), &'static str>,
    ) -> Result<(), End> {
        // What came in one record with the end of the handshake.
        self.decrypted(&mut take)?;
        read(socket, chunks, |records| self.decrypt(records, &mut take))
    }

    /// Takes what has arrived, a bounded number of bytes, and drops it as it is: what is wrong with a record, TLS cannot say any more once it
    /// was [closed](Self::close).
    ///
    /// # Errors
    /// The socket has ended.
    pub(super) fn discard(&self, socket: BorrowedFd<'_>) -> Result<(), End> {
        read(socket, CHUNKS, |_| Ok(()))
    }

    fn decrypt(
        &mut self,
        mut records: &[u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), &'static str>,
    ) -> Result<(), End> {
        while !records.is_empty() {
            self.0
                .read_tls(&mut records)
                .map_err(|_| End::Malformed("a handshake message that is too long"))?;
            self.0.process_new_packets().map_err(End::Tls)?;
            self.decrypted(take)?;
        }
        Ok(())
    }

    /// Calls `take` with what was decrypted.
    fn decrypted(&mut self, take: &mut impl FnMut(&[u8]) -> Result<(), &'static str>) -> Result<(), End> {
        let mut reader = self.0.reader();
        loop {
            match reader.fill_buf() {
                Ok([]) => return Err(End::Closed),
                Ok(bytes) => {
                    let len = bytes.len();
                    take(bytes).map_err(End::Malformed)?;
                    reader.consume(len);
                }
                // There is no more.
                Err(_) => return Ok(()),
            }
        }
    }

    /// Encrypts bytes. They are written by [`flush`](Self::flush).
    pub(super) fn encrypt(&mut self, head: &[u8], body: &[u8]) {
        let mut writer = self.0.writer();
        // Without a limit of the buffer, nothing fails, and everything is taken.
        let taken = writer
            .write_vectored(&[IoSlice::new(head), IoSlice::new(body)])
            .unwrap_or_default();
        let of_body = taken.saturating_sub(head.len());
        let _ = writer.write_all(&head[taken.min(head.len())..]);
        let _ = writer.write_all(&body[of_body..]);
    }

    /// Says that nothing follows.
    pub(super) fn close(&mut self) {
        self.0.send_close_notify();
    }

    /// Whether there is something to be written.
    pub(super) fn has_backlog(&self) -> bool {
        self.0.wants_write()
    }

    /// Writes what the socket takes.
    ///
    /// # Errors
    /// The socket has ended.
    pub(super) fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<(), End> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut Socket(socket)) {
                Ok(0) => return Err(End::Cut),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(End::Cut),
            }
        }
        Ok(())
    }
}

/// Calls `take` with what the socket has received, in so many chunks at most.
///
/// # Errors
/// The socket has ended, or `take` fails.
fn read(
    socket: BorrowedFd<'_>,
    chunks: usize,
    mut take: impl FnMut(&[u8]) -> Result<(), End>,
) -> Result<(), End> {
    let mut buffer = [MaybeUninit::uninit(); CHUNK];
    for _ in 0..chunks {
        match recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((([], _), _)) => return Err(End::Cut),
            Ok(((arrived, rest), _)) => {
                let is_last = !rest.is_empty();
                take(arrived)?;
                if is_last {
                    return Ok(());
                }
            }
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(_) => return Err(End::Cut),
        }
    }
    Ok(())
}

/// The stream of a source whose first message has not arrived.
#[derive(Default)]
pub(super) struct Opening(Acceptor);

impl Opening {
    /// Takes what has arrived. Returns the stream once the source has said what it proves itself by, and what it asks for.
    ///
    /// # Errors
    /// The socket has ended, or TLS refuses what arrived: the source is told.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        choose: impl Fn(&ClientHello<'_>) -> Arc<ServerConfig>,
    ) -> Result<Option<Stream>, End> {
        let mut stream: Option<Stream> = None;
        let refuse = |(error, mut alert): (Error, rustls::server::AcceptedAlert)| {
            let _ = alert.write(&mut Socket(socket));
            End::Tls(error)
        };
        read(socket, CHUNKS, |mut records| {
            while !records.is_empty() {
                if let Some(stream) = &mut stream {
                    return stream.decrypt(records, &mut |_| Err("a message before the handshake is over"));
                }
                self.0
                    .read_tls(&mut records)
                    .map_err(|_| End::Malformed("a handshake message that is too long"))?;
                if let Some(accepted) = self.0.accept().map_err(refuse)? {
                    let config = choose(&accepted.client_hello());
                    let tls = accepted.into_connection(config).map_err(refuse)?;
                    stream = Some(Stream::new(tls));
                }
            }
            Ok(())
        })?;
        Ok(stream)
    }
}

/// A socket to write to.
struct Socket<'a>(BorrowedFd<'a>);

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(sendmsg(
            self.0,
            slices,
            &mut SendAncillaryBuffer::default(),
            flags,
        )?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
