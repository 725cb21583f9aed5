//! Reports of sends that asked for no completion.

use std::sync::{Arc, Mutex};

use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::status::{Rejection, Status};

use super::hostile_frames::{Script, honest};
use crate::target::bench::Bench;
use crate::transport::{LinkError, Outbound};

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
