//! Completions that are waited for, by token.

use super::{Completion, Error};
use crate::driver::driven::Signals;
use crate::driver::queue::Ticket;

/// The table. A token is a place in it and a serial number, so that a late completion finds nobody but its own.
#[derive(Debug, Default)]
pub(super) struct Pendings {
    places: Vec<Pending>,
    free: Vec<u32>,
    /// Tokens given so far.
    given: u64,
}

#[derive(Debug)]
struct Pending {
    serial: u32,
    /// Its invocation is in the open batch: it was not sent.
    in_batch: bool,
    state: State,
    /// The waiter that is told of it; 0: none.
    waiter: Ticket,
}

/// What a completion is of.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// Everything sent before.
    Flush,
    /// A page of what the target has counted.
    Stats,
    /// An invocation of this handle's image.
    Ifunc(u32),
}

/// What may be sent again.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) handle: u32,
    pub(super) payload: Vec<u8>,
}

impl Again {
    pub(super) fn new(handle: u32, payload: &[u8]) -> Box<Self> {
        Box::new(Self {
            handle,
            payload: payload.to_vec(),
        })
    }
}

/// What became of it. An error is large and rare, and what is here is moved about.
pub(in crate::source) type Outcome = Result<Completion, Box<Error>>;

#[derive(Debug)]
enum State {
    Free,
    Waiting {
        what: What,
        /// How many tokens were given before it.
        age: u64,
        /// Sequence of the frame.
        sequence: u32,
        /// If it may be run again. Boxed: it is rare, and calls hand their state about.
        again: Option<Box<Again>>,
    },
    Done(Outcome),
    /// Nobody waits any more.
    Abandoned,
}

impl Pendings {
    /// A new token, never 0.
    pub(super) fn wait_for(&mut self, what: What, again: Option<Box<Again>>) -> u64 {
        self.given += 1;
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.add(),
        };
        let place = &mut self.places[index as usize];
        place.serial = place.serial.wrapping_add(1).max(1);
        place.in_batch = false;
        // Into a place that is known to own nothing the state is written field by field. Put together elsewhere first, it would be
        // loaded in larger pieces than it was stored in, and that waits until the frame before has left the store buffer: as
        // long as its cache line takes from one core to the other.
        debug_assert!(matches!(place.state, State::Free), "a free place is taken");
        if let State::Free = place.state {
            place.state = State::Waiting {
                what,
                age: self.given,
                sequence: 0,
                again,
            };
        }
        token_of(index, place.serial)
    }

    /// Another place.
    #[cold]
    fn add(&mut self) -> u32 {
        self.places.push(Pending {
            serial: 0,
            in_batch: false,
            state: State::Free,
            waiter: 0,
        });
        (self.places.len() - 1) as u32
    }

    /// Its frame was sent.
    pub(super) fn sent(&mut self, token: u64, place: u32) {
        if let Some(State::Waiting { sequence, .. }) = self.state(token) {
            *sequence = place;
        }
    }

    /// Its invocation lies in the open batch, or does not any more.
    pub(super) fn set_in_batch(&mut self, token: u64, is: bool) {
        if let Some(place) = find(&mut self.places, token) {
            place.in_batch = is;
        }
    }

    /// Whether its invocation lies in the open batch.
    pub(super) fn is_in_batch(&mut self, token: u64) -> bool {
        find(&mut self.places, token).is_some_and(|place| place.in_batch)
    }

    /// It is done. Returns the sequence of its frame, if somebody waited.
    pub(super) fn complete(&mut self, token: u64, result: Outcome, signals: &mut Signals) -> Option<u32> {
        let place = find(&mut self.places, token)?;
        match place.state {
            State::Waiting { sequence, .. } => {
                place.state = State::Done(result);
                signals.completed(std::mem::take(&mut place.waiter));
                Some(sequence)
            }
            State::Abandoned => {
                self.release(token);
                None
            }
            State::Free | State::Done(_) => None,
        }
    }

    /// This waiter (0: none) is told when it is done.
    pub(super) fn watch(&mut self, token: u64, waiter: Ticket) {
        if let Some(place) = find(&mut self.places, token) {
            place.waiter = waiter;
        }
    }

    /// What is waited for, if it is not done.
    pub(super) fn waiting(&mut self, token: u64) -> Option<What> {
        match self.state(token)? {
            State::Waiting { what, .. } => Some(*what),
            _ => None,
        }
    }

    /// What may be sent again of it: once. If that is lost too, it is not sent a third time.
    pub(super) fn take_again(&mut self, token: u64) -> Option<Box<Again>> {
        match self.state(token)? {
            State::Waiting { again, .. } => again.take(),
            _ => None,
        }
    }

    /// Its result, once.
    pub(super) fn take(&mut self, token: u64) -> Option<Outcome> {
        let state = self.state(token)?;
        if !matches!(state, State::Done(_)) {
            return None;
        }
        let State::Done(result) = std::mem::replace(state, State::Free) else {
            return None;
        };
        self.release(token);
        Some(result)
    }

    /// Nobody waits any more. `comes`: its completion may still come, so the token stays taken.
    pub(super) fn abandon(&mut self, token: u64, comes: bool) {
        self.watch(token, 0);
        match self.state(token) {
            Some(state @ State::Waiting { .. }) if comes => *state = State::Abandoned,
            Some(State::Waiting { .. } | State::Done(_)) => self.release(token),
            _ => {}
        }
    }

    /// No completion of what was sent will come any more. What may be sent again goes on waiting, and is returned; everything
    /// else ends with `verdict`.
    pub(super) fn lose(
        &mut self,
        signals: &mut Signals,
        mut verdict: impl FnMut(u64, What) -> Error,
    ) -> Vec<u64> {
        let mut again_tokens = Vec::new();
        for (index, place) in self.places.iter_mut().enumerate() {
            let token = token_of(index as u32, place.serial);
            if place.in_batch {
                continue;
            }
            match &place.state {
                State::Waiting {
                    again: Some(_), age, ..
                } => again_tokens.push((*age, token)),
                State::Waiting {
                    what, again: None, ..
                } => {
                    place.state = State::Done(Err(Box::new(verdict(token, *what))));
                    signals.completed(std::mem::take(&mut place.waiter));
                }
                State::Abandoned => {
                    place.state = State::Free;
                    self.free.push(index as u32);
                }
                State::Free | State::Done(_) => {}
            }
        }
        // In the order in which they were sent the first time, whatever places they have.
        again_tokens.sort_unstable();
        again_tokens.into_iter().map(|(_, token)| token).collect()
    }

    /// Tokens that are not free.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn release(&mut self, token: u64) {
        if let Some(place) = find(&mut self.places, token) {
            place.state = State::Free;
            place.waiter = 0;
            self.free.push(token as u32);
        }
    }

    fn state(&mut self, token: u64) -> Option<&mut State> {
        find(&mut self.places, token).map(|place| &mut place.state)
    }
}

fn find(places: &mut [Pending], token: u64) -> Option<&mut Pending> {
    let place = places.get_mut(token as u32 as usize)?;
    (place.serial == (token >> 32) as u32).then_some(place)
}

const fn token_of(index: u32, serial: u32) -> u64 {
    (serial as u64) << 32 | index as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> Outcome {
        Ok(Completion::executed())
    }

    #[test]
    fn a_token_finds_its_own_and_only_once() {
        let mut table = Pendings::default();
        let signals = &mut Signals::default();
        let first = table.wait_for(What::Flush, None);
        table.sent(first, 7);
        assert!(table.take(first).is_none());
        assert_eq!(table.complete(first, done(), signals), Some(7));
        assert_eq!(
            table.complete(first, done(), signals),
            None,
            "a second completion finds nobody"
        );
        assert!(table.take(first).is_some());
        assert!(table.take(first).is_none());
        let second = table.wait_for(What::Flush, None);
        assert_eq!(second as u32, first as u32, "the place is used again");
        assert_eq!(
            table.complete(first, done(), signals),
            None,
            "the old token is not the new one"
        );
        assert!(table.waiting(second).is_some());
    }

    #[test]
    fn an_abandoned_token_is_kept_until_its_completion_cannot_come_any_more() {
        let mut table = Pendings::default();
        let signals = &mut Signals::default();
        let comes = table.wait_for(What::Flush, None);
        table.abandon(comes, true);
        let other = table.wait_for(What::Flush, None);
        assert_ne!(other as u32, comes as u32);
        table.complete(comes, done(), signals);
        assert_eq!(table.wait_for(What::Flush, None) as u32, comes as u32);
        let again = table.wait_for(What::Ifunc(0), Some(Again::new(0, &[1])));
        let lost = table.lose(signals, |_, _| Error::Indeterminate { what: String::new() });
        assert_eq!(lost, [again]);
        assert!(matches!(
            table.take(other),
            Some(Err(error)) if matches!(*error, Error::Indeterminate { .. })
        ));
        assert!(table.take_again(again).is_some());
        assert!(table.take_again(again).is_none());
    }
}
