//! The source sends the chaser itself, which goes from server to server.

use std::collections::VecDeque;

use example_04_pointer_chase_ifuncs::{Walk, follow};
use example_servers::Failure;
use ifunc_rt::{Call, Handle, Source};

use crate::measure::{Chaser, Ended, Plan};
use crate::permutation::Cut;

/// Handles of the chaser, one for each server.
pub struct Ifunc {
    servers: Vec<Handle<follow>>,
    cut: Cut,
    depth: u64,
    under_way: VecDeque<(usize, Call<u64>)>,
}

impl Ifunc {
    /// Chases by ifuncs.
    ///
    /// # Errors
    /// There is no image of the chaser.
    pub fn new(servers: &[Source], plan: &Plan) -> Result<Self, Failure> {
        let servers = servers.iter().map(Source::register::<follow>);
        Ok(Self {
            servers: servers.collect::<Result<_, _>>()?,
            cut: plan.cut,
            depth: plan.depth,
            under_way: VecDeque::new(),
        })
    }
}

impl Chaser for Ifunc {
    fn begin(&mut self, slot: usize, at: u64) -> Result<(), Failure> {
        let server = &self.servers[self.cut.place(at).0 as usize];
        let left = self.depth;
        self.under_way.push_back((slot, server.call(&Walk { at, left })?));
        Ok(())
    }

    fn wait(&mut self) -> Result<Ended, Failure> {
        // Those that have ended meanwhile come first.
        if self.under_way.len() > 1 {
            for _ in 0..self.under_way.len() {
                let Some((slot, mut call)) = self.under_way.pop_front() else {
                    break;
                };
                if let Some(end) = call.try_wait() {
                    return Ok((slot, end?));
                }
                self.under_way.push_back((slot, call));
            }
        }
        let (slot, call) = self.under_way.pop_front().ok_or("no chase is under way")?;
        Ok((slot, call.wait()?))
    }
}
