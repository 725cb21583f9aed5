//! Lines that match a regular expression.

use alloc::vec;
use alloc::vec::Vec;

use ifunc::zerocopy::IntoBytes;
use memchr::{memchr, memchr2, memchr3};
use regex_automata::dfa::{Automaton, dense, sparse};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;

use crate::page::{Predicate, Verdict};

/// An aligned copy of a dense DFA's bytes: its table consists of words.
pub(crate) fn aligned(dfa: &[u8]) -> Vec<u32> {
    let mut words = vec![0_u32; dfa.len().div_ceil(size_of::<u32>())];
    words.as_mut_bytes()[..dfa.len()].copy_from_slice(dfa);
    words
}

/// Validates the pattern in the first `len` bytes of `words`, which come from another process.
pub(crate) fn dense(words: &[u32], len: usize) -> Pattern<dense::DFA<&[u32]>> {
    match dense::DFA::from_bytes(&words.as_bytes()[..len]) {
        Ok((dfa, _)) => Pattern::new(dfa),
        Err(_) => no_dfa(),
    }
}

/// Validates the sparse pattern in `bytes`.
pub(crate) fn sparse(bytes: &[u8]) -> Pattern<sparse::DFA<&[u8]>> {
    match sparse::DFA::from_bytes(bytes) {
        Ok((dfa, _)) => Pattern::new(dfa),
        Err(_) => no_dfa(),
    }
}

fn no_dfa() -> ! {
    panic!("the payload holds no regular expression that this code can run")
}

/// The state of a regular expression within a line.
pub(crate) struct Pattern<A> {
    dfa: A,
    start: StateID,
    state: StateID,
}

impl<A: Automaton> Pattern<A> {
    fn new(dfa: A) -> Self {
        // For the expression a line is the whole text, so `^` matches at its beginning.
        let Ok(start) = dfa.start_state(&start::Config::new()) else {
            panic!("the regular expression cannot begin anywhere");
        };
        Self {
            dfa,
            start,
            state: start,
        }
    }

    fn verdict(&self) -> Verdict {
        match () {
            () if self.dfa.is_match_state(self.state) => Verdict::Yes,
            () if self.dfa.is_dead_state(self.state) => Verdict::No,
            () if self.dfa.is_quit_state(self.state) => {
                panic!("the regular expression gives up on some bytes of this text")
            }
            () => Verdict::Open,
        }
    }

    /// The position in `part` of the next byte that leaves this state, if few bytes leave it.
    fn skip(&self, part: &[u8]) -> usize {
        let found = match *self.dfa.accelerator(self.state) {
            [a] => memchr(a, part),
            [a, b] => memchr2(a, b, part),
            [a, b, c] => memchr3(a, b, c, part),
            _ => Some(0),
        };
        found.unwrap_or(part.len())
    }
}

impl<A: Automaton> Predicate for Pattern<A> {
    fn begin(&mut self) {
        self.state = self.start;
    }

    fn part(&mut self, part: &[u8]) -> Verdict {
        let mut at = 0;
        while let Some(&byte) = part.get(at) {
            at += 1;
            self.state = self.dfa.next_state(self.state, byte);
            if self.dfa.is_special_state(self.state) {
                match self.verdict() {
                    Verdict::Open => at += self.skip(&part[at..]),
                    verdict => return verdict,
                }
            }
        }
        Verdict::Open
    }

    fn end(&mut self) -> bool {
        self.state = self.dfa.next_eoi_state(self.state);
        self.verdict() == Verdict::Yes
    }
}
