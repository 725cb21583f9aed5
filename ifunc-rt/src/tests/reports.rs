//! Reports of sends that asked for no completion.

use std::sync::{Arc, Mutex};

use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::status::{Rejection, Status};

use super::hostile_frames::{Script, honest};
use super::images::{self, Add};
use super::running::{accepting, unique};
use crate::target::bench::Bench;
use crate::transport::{LinkError, Outbound};
use crate::{Error, Source};

/// Grants no credit on the first request.
struct Narrow {
    asked: bool,
    room: [u8; 2048],
    said: Arc<Mutex<Vec<Header>>>,
}

impl Outbound for Narrow {
    fn max_body(&self) -> usize {
        self.room.len()
    }

    fn reserve(&mut self, len: usize, _: usize) -> Result<Option<&mut [u8]>, LinkError> {
        let asked = std::mem::replace(&mut self.asked, true);
        Ok(asked.then_some(&mut self.room[..len]))
    }

    fn commit(&mut self, header: Header, _: usize) -> u32 {
        let mut said = self.said.lock().unwrap();
        said.push(header);
        said.len() as u32
    }
}

/// It has sent its last frame, and no other will come for the report to go before.
#[test]
fn a_report_that_found_no_room_goes_when_there_is_some() {
    let said = Arc::<Mutex<Vec<Header>>>::default();
    let tx = Narrow {
        asked: false,
        room: [0; 2048],
        said: said.clone(),
    };
    let rx = Script::new(vec![honest(1, Header::new(Kind::Exec, 5, 0), vec![])]);
    Bench::new().look(tx, rx).unwrap();
    let said = said.lock().unwrap();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((said[0].kind, said[0].token), (Kind::Report, 1));
    let why = Status::from_code(said[0].handle);
    assert_eq!(why, Some(Status::Rejected(Rejection::Unbound)));
}

/// A stream polls for reports once in 16 frames.
#[test]
fn one_of_the_next_sends_of_a_stream_returns_the_error_of_an_earlier_one() {
    let mut target = accepting().listen(&unique("shm")).unwrap();
    let address = target.address();
    let mut value = 0u64;
    let source = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| Source::connect(&address).unwrap());
        while !connecting.is_finished() {
            target.poll(&mut value);
        }
        connecting.join().unwrap()
    });
    let add = source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    let panics = source.load_bytes(&images::panics().encode().unwrap()).unwrap();
    let mut stream = |target: &mut crate::Target, most: usize| {
        for sent in 0..most {
            match add.send(&1) {
                Ok(()) => while target.poll(&mut value) > 0 {},
                Err(Error::Earlier(_)) => return Some(sent),
                Err(error) => panic!("{error}"),
            }
        }
        None
    };
    for round in 0..3 {
        assert_eq!(stream(&mut target, 20_000), None, "round {round}");
        panics.send(b"").unwrap();
        while target.poll(&mut 0u64) > 0 {}
        let sent = stream(&mut target, 16);
        assert!(sent.is_some(), "round {round}: not one of 16 sends");
    }
}
