//! How a side goes to sleep without missing what is put meanwhile.
//!
//! A put lands without an event, and may be under way when its receiver polls for the last time. So:
//!
//! * a side that puts first counts it in a word of its own memory (*posted*), and then, after a fence, reads the word in which its
//!   peer announces sleeps. It answers each announcement with one doorbell, a notice;
//! * a side that is about to sleep puts an announcement, waits until it has landed (flush), and then gets the peer's *posted*.
//!
//! Either the peer reads the announcement after its put, and sends a doorbell; or it read the word before the announcement landed, so
//! that *posted* was written before that, too, and the get, which was sent after it landed, returns it. The side sleeps if
//! everything that was posted has landed. Otherwise something is about to land, and it stays awake.
//!
//! An announcement holds until it is answered: sleeping again is free until the doorbell, and nothing has to be withdrawn.

use super::layout::Posted;
use crate::transport::window::Credits;

/// How far an announcement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is being put.
    Putting,
    /// It was put, and has to land.
    Flushing,
    /// It has landed; what the peer posted is being got.
    Getting,
}

/// The announcements of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sleeping {
    /// The last one.
    number: u64,
    /// The last one that was answered.
    answered: u64,
    /// Not `None` while one is on its way.
    step: Option<Step>,
    /// What the peer had posted when it saw the last one at the latest.
    posted: Posted,
}

/// Whether a side may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A doorbell will wake it, or the next step of the announcement.
    MaySleep,
    /// Something was posted that has not landed.
    Expecting,
    /// The announcement was answered, or there is none.
    Unannounced,
}

impl Sleeping {
    /// A new announcement to be put, if there has to be one.
    pub(crate) fn begin(&mut self) -> Option<u64> {
        if self.step.is_some() || self.answered != self.number {
            return None;
        }
        self.number += 1;
        self.step = Some(Step::Putting);
        Some(self.number)
    }

    /// The step is done; the next one.
    pub(crate) fn advance(&mut self) -> Option<Step> {
        self.step = match self.step {
            Some(Step::Putting) => Some(Step::Flushing),
            Some(Step::Flushing) => Some(Step::Getting),
            Some(Step::Getting) | None => None,
        };
        self.step
    }

    /// The last step is done: what the peer posted.
    pub(crate) fn got(&mut self, posted: Posted) {
        self.posted = posted;
        self.step = None;
    }

    /// A doorbell arrived: the peer answered an announcement.
    pub(crate) fn woken(&mut self, number: u64) -> Result<(), &'static str> {
        // One for each announcement, and the next announcement waits for it.
        if number != self.number || number == self.answered {
            return Err("a doorbell for no announced sleep");
        }
        self.answered = number;
        Ok(())
    }

    /// Whether the side may sleep that has seen this many frames and these credits land.
    pub(crate) fn verdict(&self, frames: u32, credits: Credits) -> Verdict {
        if self.step.is_some() {
            return Verdict::MaySleep;
        }
        if self.answered == self.number {
            return Verdict::Unannounced;
        }
        let seen = |seen: u32, posted: u32| seen.wrapping_sub(posted) as i32 >= 0;
        if seen(frames, self.posted.frames)
            && seen(credits.frames as u32, self.posted.credits.frames as u32)
            && seen(credits.data as u32, self.posted.credits.data as u32)
        {
            Verdict::MaySleep
        } else {
            Verdict::Expecting
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Both sides, the memory of each, and what is on its way between them. A side that puts does one step of `send` at a time.
    #[derive(Clone, Debug)]
    struct World {
        // The sender.
        left: u32,
        at: u8,
        posted: u32,
        announced: u64,
        answered: u64,
        // Between them: puts and doorbells land whenever they like, puts of slots in any order, too.
        frames: Vec<u32>,
        doorbells: Vec<u64>,
        announcement: Option<u64>,
        reply: Option<u32>,
        // The receiver.
        landed: BTreeSet<u32>,
        seen: u32,
        sleeping: Sleeping,
        asleep: bool,
    }

    impl World {
        fn key(&self) -> String {
            format!("{self:?}")
        }

        /// Every world that can follow.
        fn next(&self, fenced: bool) -> Vec<Self> {
            let mut worlds = Vec::new();
            let mut and = |change: &dyn Fn(&mut Self)| {
                let mut world = self.clone();
                change(&mut world);
                worlds.push(world);
            };
            // The sender: posts, puts, reads the announcement; in another order if it is not fenced.
            match (self.at, fenced) {
                (0, _) if self.left > 0 => and(&|world| {
                    world.left -= 1;
                    world.at = 1;
                }),
                (1, true) | (3, false) => and(&|world| {
                    world.posted += 1;
                    world.at = if fenced { 2 } else { 0 };
                }),
                (2, true) | (1, false) => and(&|world| {
                    let number = world.posted + u32::from(!fenced);
                    world.frames.push(number);
                    world.at = if fenced { 3 } else { 2 };
                }),
                (3, true) | (2, false) => and(&|world| {
                    if world.announced != world.answered {
                        world.answered = world.announced;
                        world.doorbells.push(world.announced);
                    }
                    world.at = if fenced { 0 } else { 3 };
                }),
                _ => {}
            }
            for n in 0..self.frames.len() {
                and(&|world| {
                    let frame = world.frames.remove(n);
                    world.landed.insert(frame);
                });
            }
            for n in 0..self.doorbells.len() {
                and(&|world| {
                    let doorbell = world.doorbells.remove(n);
                    world.sleeping.woken(doorbell).unwrap();
                    world.asleep = false;
                });
            }
            // The receiver's operations, each of which ends in an event that wakes it.
            let step = self.sleeping.step;
            if let Some(number) = self.announcement {
                and(&|world| {
                    world.announcement = None;
                    world.announced = number;
                });
            } else if matches!(step, Some(Step::Putting | Step::Flushing)) {
                and(&|world| {
                    world.sleeping.advance();
                    world.asleep = false;
                });
            }
            if step == Some(Step::Getting) {
                match self.reply {
                    None => and(&|world| world.reply = Some(world.posted)),
                    Some(frames) => and(&|world| {
                        let posted = Posted {
                            frames,
                            ..Posted::default()
                        };
                        world.reply = None;
                        world.sleeping.got(posted);
                        world.asleep = false;
                    }),
                }
            }
            // The receiver itself: looks, and goes to sleep.
            if !self.asleep {
                if self.landed.contains(&(self.seen + 1)) {
                    and(&|world| world.seen += 1);
                } else {
                    and(&|world| {
                        world.announcement = world.sleeping.begin().or(world.announcement);
                        let verdict = world.sleeping.verdict(world.seen, Credits::default());
                        world.asleep = verdict == Verdict::MaySleep;
                    });
                }
            }
            worlds
        }

        /// Nothing is on its way, the sender is done and the receiver sleeps with something unseen.
        fn is_stuck(&self) -> bool {
            let quiet = self.frames.is_empty() && self.doorbells.is_empty() && self.sleeping.step.is_none();
            self.asleep && quiet && self.left == 0 && self.at == 0 && self.landed.contains(&(self.seen + 1))
        }
    }

    /// Looks at every order of events; how many worlds there were, or one that is stuck.
    fn explore(fenced: bool) -> Result<usize, Box<World>> {
        let first = World {
            left: 3,
            at: 0,
            posted: 0,
            announced: 0,
            answered: 0,
            frames: Vec::new(),
            doorbells: Vec::new(),
            announcement: None,
            reply: None,
            landed: BTreeSet::new(),
            seen: 0,
            sleeping: Sleeping::default(),
            asleep: false,
        };
        let mut known = BTreeSet::from([first.key()]);
        let mut open = vec![first];
        while let Some(world) = open.pop() {
            if world.is_stuck() {
                return Err(Box::new(world));
            }
            open.extend(
                world
                    .next(fenced)
                    .into_iter()
                    .filter(|world| known.insert(world.key())),
            );
        }
        Ok(known.len())
    }

    #[test]
    fn no_wake_up_is_lost_in_any_order_of_events() {
        let worlds = explore(true).unwrap_or_else(|world| panic!("asleep for ever: {world:?}"));
        assert!(worlds > 1000, "{worlds} worlds are not all");
    }

    #[test]
    fn a_wake_up_is_lost_if_the_announcement_is_read_before_the_put_is_posted() {
        assert!(explore(false).is_err());
    }

    #[test]
    fn doorbells_answer_announcements() {
        let mut sleeping = Sleeping::default();
        let none = Credits::default();
        assert!(sleeping.woken(1).is_err());
        assert_eq!(sleeping.verdict(0, none), Verdict::Unannounced);
        assert_eq!(sleeping.begin(), Some(1));
        assert_eq!(sleeping.begin(), None);
        assert_eq!(
            [sleeping.advance(), sleeping.advance()],
            [Some(Step::Flushing), Some(Step::Getting)]
        );
        sleeping.got(Posted {
            frames: u32::MAX,
            credits: none,
        });
        assert_eq!(sleeping.verdict(u32::MAX - 1, none), Verdict::Expecting);
        assert_eq!(sleeping.verdict(3, none), Verdict::MaySleep);
        assert_eq!(sleeping.begin(), None);
        assert_eq!(sleeping.woken(1), Ok(()));
        assert_eq!(sleeping.verdict(3, none), Verdict::Unannounced);
        assert_eq!(sleeping.begin(), Some(2));
        assert!(sleeping.woken(1).is_err(), "an earlier one");
        assert_eq!(sleeping.begin(), None);
        assert_eq!(sleeping.woken(2), Ok(()));
        assert!(sleeping.woken(2).is_err(), "a second one");
    }
}
