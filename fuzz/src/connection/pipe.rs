//! A link whose other side is the input of the fuzzer.

use std::collections::{BTreeMap, VecDeque};

use ifunc_abi::batch::RunHead;
use ifunc_abi::frame::{Header, Kind};
use ifunc_proto::link::{Frame, Inbound, Link, LinkError, Outbound};
use zerocopy::FromBytes as _;

/// Largest body of a frame.
pub(super) const MAX_BODY: usize = 1024;
/// Frames that may be on their way in a direction.
pub(super) const WINDOW: usize = 16;

/// Both directions.
pub(super) struct Pipe {
    tx: Tx,
    rx: Rx,
}

/// What the connection sends.
pub(super) struct Tx {
    staging: Vec<u8>,
    reserved: Option<usize>,
    sent: u32,
    pub(super) window: usize,
    pub(super) is_dead: bool,
    /// Requests that were delivered with a token, and completions that were sent for it.
    asked: BTreeMap<u64, (u64, u64)>,
    /// Tokens of this side's requests, as the peer sees them.
    pub(super) tokens: Vec<u64>,
}

/// What the connection receives.
pub(super) struct Rx {
    frames: VecDeque<(u32, [u64; 2], Vec<u8>)>,
    pub(super) is_dead: bool,
}

impl Pipe {
    pub(super) fn new() -> Self {
        Self {
            tx: Tx {
                staging: vec![0; MAX_BODY],
                reserved: None,
                sent: 0,
                window: WINDOW,
                is_dead: false,
                asked: BTreeMap::new(),
                tokens: Vec::new(),
            },
            rx: Rx {
                frames: VecDeque::new(),
                is_dead: false,
            },
        }
    }

    pub(super) fn tx(&mut self) -> &mut Tx {
        &mut self.tx
    }

    /// The peer sends a frame.
    pub(super) fn deliver(&mut self, sequence: u32, words: [u64; 2], body: Vec<u8>) {
        if self.rx.frames.len() >= 4 * WINDOW {
            return;
        }
        if let Ok(header) = Header::parse(words) {
            self.tx.note_request(&header, &body);
        }
        self.rx.frames.push_back((sequence, words, body));
    }

    /// Both directions end.
    pub(super) fn kill(&mut self) {
        self.tx.is_dead = true;
        self.rx.is_dead = true;
    }
}

impl Link for Pipe {
    type Tx = Tx;
    type Rx = Rx;

    fn split(&mut self) -> (&mut Tx, &mut Rx) {
        (&mut self.tx, &mut self.rx)
    }
}

/// The runs of a body: the token of the first entry, and how many there are.
fn runs(mut body: &[u8]) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    while let Ok((head, _)) = RunHead::read_from_prefix(body) {
        let Some(rest) = head.run_len().and_then(|len| body.get(len..)) else {
            break;
        };
        all.push((head.token.get(), head.count.get().into()));
        body = rest;
    }
    all
}

impl Tx {
    fn note_request(&mut self, header: &Header, body: &[u8]) {
        match header.kind {
            Kind::Batch => {
                for (token, count) in runs(body).into_iter().filter(|&(token, _)| token != 0) {
                    // Entries without bytes are many: those that the corpus of a target can hold.
                    for token in (0..count.min(1 << 16)).map_while(|index| token.checked_add(index)) {
                        self.asked.entry(token).or_default().0 += 1;
                    }
                }
            }
            Kind::Fragment => {}
            _ if header.token != 0 => self.asked.entry(header.token).or_default().0 += 1,
            _ => {}
        }
    }

    /// No token is answered more often than it was asked.
    fn note_answer(&mut self, token: u64) {
        let (asked, answered) = self.asked.entry(token).or_default();
        *answered += 1;
        assert!(
            answered <= asked,
            "token {token} is answered {answered} times, and was asked {asked} times"
        );
    }

    fn note_sent(&mut self, header: &Header, len: usize) {
        match header.kind {
            Kind::Completion => self.note_answer(header.token),
            Kind::Completions => {
                for (token, count) in runs(&self.staging[..len].to_vec()) {
                    (0..count).for_each(|index| self.note_answer(token + index));
                }
            }
            kind if (kind as u8) < Kind::Completion as u8 && kind != Kind::Fragment => {
                let batched = match kind {
                    Kind::Batch => runs(&self.staging[..len].to_vec()),
                    _ => vec![(header.token, 1)],
                };
                let tokens = batched.into_iter().filter(|&(token, _)| token != 0);
                self.tokens
                    .extend(tokens.flat_map(|(token, count)| (0..count).map(move |index| token + index)));
                let surplus = self.tokens.len().saturating_sub(256);
                self.tokens.drain(..surplus);
            }
            _ => {}
        }
    }
}

impl Outbound for Tx {
    fn max_body(&self) -> usize {
        MAX_BODY
    }

    fn reserve(&mut self, len: usize, align: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert!(len <= MAX_BODY && align.is_power_of_two() && align <= 64);
        if self.is_dead {
            return Err(LinkError::Closed);
        }
        if self.window == 0 {
            return Ok(None);
        }
        self.reserved = Some(len);
        Ok(Some(&mut self.staging[..len]))
    }

    fn commit(&mut self, header: Header, len: usize) -> u32 {
        let reserved = self.reserved.take().expect("a commit after a reservation");
        assert!(
            len <= reserved && self.window > 0,
            "a commit beyond its reservation or credit"
        );
        assert_eq!(Header::parse(header.words()), Ok(header));
        self.note_sent(&header, len);
        self.window -= 1;
        self.sent = self.sent.wrapping_add(1);
        self.sent
    }
}

impl Inbound for Rx {
    type Body<'a>
        = &'a [u8]
    where
        Self: 'a;

    fn peek(&mut self) -> Result<Option<Frame<&[u8]>>, LinkError> {
        match self.frames.front() {
            Some((sequence, words, body)) => Ok(Some(Frame {
                sequence: *sequence,
                words: *words,
                body,
            })),
            None if self.is_dead => Err(LinkError::Closed),
            None => Ok(None),
        }
    }

    fn release(&mut self) {
        self.frames.pop_front().expect("a frame that was peeked");
    }

    fn settle(&mut self) {}
}
