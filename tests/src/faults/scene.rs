//! Two processes and a bystander, brought into a state by a failpoint.
//!
//! The bystander shows that the survivor is of use to others: another source where the source is the victim, another
//! target where the target is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::cell::{Cell, Fault, Moment, Side, Transport};
use super::ledger::{self, Ledger};
use super::process::{Holdings, Process};
use super::{CREDITS, LARGE, TIMEOUT};

/// A payload that is not inline, and no more than a frame holds.
const SMALL: usize = 200;

/// What all cells have in common.
#[derive(Debug)]
pub struct Setting {
    /// The folder of the roles' programs.
    pub programs: PathBuf,
    /// The folder of the ifuncs' libraries.
    pub libraries: PathBuf,
    /// Where processes have their files.
    pub scratch: PathBuf,
    /// How long a process is stopped.
    pub stop: Duration,
    /// What a machine that has other things to do may add to the time in which a death is noticed.
    pub delay: Duration,
}

/// Where exactly it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The target sleeps.
    Asleep,
    /// The source stands between two fragments.
    BetweenFragments,
    /// The source has written a body, and not published it.
    BeforeCommit,
    /// The target stands between two fragments, and the source has no room for all the others.
    FragmentsTaken,
    /// The source has sent an image, and not what runs it.
    ImageSent,
    /// The target has judged and written an image, and not bound it.
    Installing,
    /// The target runs something, and the source waits for room.
    NoRoom,
    /// The target is in the middle of an invocation.
    Running,
    /// The target has run it, and not answered.
    BeforeAnswer,
}

impl Place {
    /// All that belong to a moment.
    pub fn of(moment: Moment) -> &'static [Self] {
        match moment {
            Moment::Idle => &[Self::Asleep],
            Moment::MidFrame => &[Self::BetweenFragments, Self::BeforeCommit, Self::FragmentsTaken],
            Moment::Code => &[Self::ImageSent, Self::Installing],
            Moment::Credit => &[Self::NoRoom],
            Moment::Answer => &[Self::Running, Self::BeforeAnswer],
        }
    }

    /// The failpoint.
    pub fn point(self) -> &'static str {
        match self {
            Self::Asleep => "target.sleep",
            Self::BetweenFragments => "source.fragment",
            Self::BeforeCommit => "transport.commit",
            Self::FragmentsTaken => "target.fragment",
            Self::ImageSent => "source.installed",
            Self::Installing => "target.install",
            Self::NoRoom => "source.no_room",
            Self::Running => "main",
            Self::BeforeAnswer => "target.answer",
        }
    }

    /// Who stands still there.
    pub fn stands(self) -> Option<Side> {
        match self {
            Self::Asleep => None,
            Self::BetweenFragments | Self::BeforeCommit | Self::ImageSent => Some(Side::Source),
            Self::FragmentsTaken | Self::Installing | Self::NoRoom | Self::Running | Self::BeforeAnswer => {
                Some(Side::Target)
            }
        }
    }
}

/// What is under way when it happens.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnderWay {
    /// The source is inside of `call` or `send`: what it says first is what became of that.
    pub submitting: Option<u64>,
    /// What it is inside of is a `send`.
    pub is_send: bool,
    /// A call, to be waited for.
    pub call: Option<u64>,
    /// A call of an ifunc that may be run twice, behind the other.
    pub again: Option<u64>,
}

/// A cell's processes.
#[derive(Debug)]
pub struct Scene<'a> {
    setting: &'a Setting,
    /// Which.
    pub cell: Cell,
    folder: PathBuf,
    /// Where the target is.
    pub address: String,
    /// The target.
    pub target: Process,
    /// The source.
    pub source: Process,
    /// Another source of the target, or another target of the source.
    pub bystander: Process,
    /// The source before, which was killed.
    past: Vec<Vec<String>>,
    /// What the survivor held before there was a connection to the victim.
    pub alone: Holdings,
    /// And with it.
    pub connected: Holdings,
    /// The connection's number.
    pub sender: u64,
    next: u64,
    repeatable: BTreeSet<u64>,
    journals: [PathBuf; 2],
}

impl<'a> Scene<'a> {
    /// Starts the three, and lets them do something ordinary.
    ///
    /// # Errors
    /// Something ordinary does not work.
    pub fn begin(setting: &'a Setting, cell: Cell, folder: PathBuf) -> Result<Self, Box<(String, String)>> {
        let plain = |why: String| Box::new((why, String::new()));
        std::fs::create_dir_all(&folder)
            .map_err(|error| plain(format!("`{}`: {error}", folder.display())))?;
        let journals = [folder.join("target.journal"), folder.join("bystander.journal")];
        let (target, address) =
            start_target(setting, &cell, &folder, "target", None, &journals[0]).map_err(plain)?;
        let source = start_source(setting, &folder, "source").map_err(plain)?;
        let (bystander, elsewhere) = match cell.victim {
            Side::Source => (
                start_source(setting, &folder, "bystander").map_err(plain)?,
                address.clone(),
            ),
            Side::Target => {
                start_target(setting, &cell, &folder, "bystander", None, &journals[1]).map_err(plain)?
            }
        };
        let nothing = Holdings {
            descriptors: 0,
            shared: 0,
        };
        let mut scene = Self {
            setting,
            cell,
            folder,
            address,
            target,
            source,
            bystander,
            past: Vec::new(),
            alone: nothing,
            connected: nothing,
            sender: 0,
            next: 1,
            repeatable: BTreeSet::new(),
            journals,
        };
        match scene.make_ordinary(&elsewhere) {
            Ok(()) => Ok(scene),
            Err(why) => Err(Box::new((why, scene.diagnosis()))),
        }
    }

    fn make_ordinary(&mut self, elsewhere: &str) -> Result<(), String> {
        let other = match self.cell.victim {
            Side::Source => &mut self.bystander,
            Side::Target => &mut self.source,
        };
        let patience = TIMEOUT.as_millis();
        let connect = format!("connect other {elsewhere} {patience} 0");
        other.ask(&connect, "connected other", TIMEOUT)?;
        self.serves_others()?;
        self.alone = self.survivor().holdings()?;
        self.connect()?;
        for _ in 0..3 {
            let id = self.id();
            self.source.ask(
                &format!("send main t_fault {id} go {SMALL}"),
                &format!("sent {id} ok"),
                TIMEOUT,
            )?;
        }
        self.source.ask("flush main", "flushed main ok", TIMEOUT)?;
        self.sender = self.answered("t_fault")?;
        self.connected = self.survivor().holdings()?;
        Ok(())
    }

    /// The source connects to the target.
    ///
    /// # Errors
    /// It cannot.
    pub fn connect(&mut self) -> Result<(), String> {
        let (address, timeout) = (&self.address, self.timeout().as_millis());
        let window = self.window().as_millis();
        let connect = format!("connect main {address} {timeout} {window}");
        self.source.ask(&connect, "connected main", TIMEOUT)?;
        Ok(())
    }

    /// How long the source waits: less than its target is stopped, where that is what happens.
    pub fn timeout(&self) -> Duration {
        match (self.cell.fault, self.cell.victim) {
            (Fault::Stop, Side::Target) => self.setting.stop * 3 / 5,
            _ => TIMEOUT,
        }
    }

    /// How long the source tries to connect again: a target that was killed does not come back.
    pub fn window(&self) -> Duration {
        match self.cell.fault {
            Fault::Kill => Duration::from_millis(300),
            Fault::Stop | Fault::Restart => TIMEOUT,
        }
    }

    /// How long something is stopped.
    pub fn stop(&self) -> Duration {
        self.setting.stop
    }

    /// Within what a survivor must have noticed.
    pub fn notice(&self) -> Duration {
        let notice = match self.cell.transport {
            Transport::Shm => Duration::from_secs(1),
            Transport::Tls | Transport::Ucx | Transport::UcxPut => Duration::from_secs(5),
        };
        notice + self.setting.delay
    }

    /// Who is not the victim.
    pub fn survivor(&self) -> &Process {
        match self.cell.victim {
            Side::Source => &self.target,
            Side::Target => &self.source,
        }
    }

    /// A number for something that is sent.
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The survivor still works with the bystander.
    ///
    /// # Errors
    /// It does not.
    pub fn serves_others(&mut self) -> Result<(), String> {
        let id = self.id();
        let other = match self.cell.victim {
            Side::Source => &mut self.bystander,
            Side::Target => &mut self.source,
        };
        answered(other, "other", "t_fault", id).map(drop)
    }

    /// The source calls and is answered; the connection's number.
    ///
    /// # Errors
    /// Not so.
    pub fn answered(&mut self, ifunc: &str) -> Result<u64, String> {
        let id = self.id();
        if ifunc == "t_fault_again" {
            self.repeatable.insert(id);
        }
        answered(&mut self.source, "main", ifunc, id)
    }

    /// The source calls: the number, and what became of that.
    ///
    /// # Errors
    /// It says nothing.
    pub fn call(&mut self) -> Result<(u64, String), String> {
        let id = self.id();
        let said = format!("called {id}");
        let called = self
            .source
            .ask(&format!("call main t_fault {id} go {SMALL}"), &said, TIMEOUT)?;
        Ok((id, called))
    }

    /// Brings the two to the place, which says so.
    ///
    /// # Errors
    /// It is not reached.
    pub fn enter(&mut self, place: Place) -> Result<UnderWay, String> {
        let id = self.id();
        let (source_mark, target_mark) = (self.source.mark(), self.target.mark());
        let point = place.point();
        let mut under_way = UnderWay::default();
        let reaches = |process: &Process, mark| process.reaches(mark, point, TIMEOUT);
        match place {
            Place::Asleep => {
                self.target.ask("target.sleep:1:pass", "armed", TIMEOUT)?;
                self.answered("t_fault")?;
                reaches(&self.target, target_mark)?;
            }
            Place::BetweenFragments | Place::BeforeCommit | Place::ImageSent => {
                let (times, ifunc, size) = match place {
                    Place::BetweenFragments => (2, "t_fault", LARGE),
                    Place::BeforeCommit => (1, "t_fault", SMALL),
                    _ => (1, "t_fault_late", SMALL),
                };
                self.source
                    .ask(&format!("arm {point}:{times}"), "armed", TIMEOUT)?;
                self.source.tell(&format!("call main {ifunc} {id} go {size}"))?;
                reaches(&self.source, source_mark)?;
                under_way.submitting = Some(id);
            }
            Place::FragmentsTaken => {
                self.target.ask(&format!("{point}:2"), "armed", TIMEOUT)?;
                self.source.tell(&format!("call main t_fault {id} go {LARGE}"))?;
                reaches(&self.target, target_mark)?;
                under_way.submitting = Some(id);
            }
            Place::Installing => {
                self.target.ask(point, "armed", TIMEOUT)?;
                let call = format!("call main t_fault_late {id} go {SMALL}");
                self.source.ask(&call, &format!("called {id} ok"), TIMEOUT)?;
                reaches(&self.target, target_mark)?;
                under_way.call = Some(id);
            }
            Place::NoRoom => {
                self.target.ask("main", "armed", TIMEOUT)?;
                let call = format!("call main t_fault {id} stand {SMALL}");
                self.source.ask(&call, &format!("called {id} ok"), TIMEOUT)?;
                self.target.reaches(target_mark, "main", TIMEOUT)?;
                under_way.call = Some(id);
                self.source
                    .ask(&format!("arm {point}:1:pass"), "armed", TIMEOUT)?;
                under_way.submitting = Some(self.fill(source_mark, point)?);
                under_way.is_send = true;
            }
            Place::Running | Place::BeforeAnswer => {
                self.target.ask(point, "armed", TIMEOUT)?;
                let call = format!("call main t_fault {id} stand {SMALL}");
                self.source.ask(&call, &format!("called {id} ok"), TIMEOUT)?;
                reaches(&self.target, target_mark)?;
                let again = self.id();
                self.repeatable.insert(again);
                let call = format!("call main t_fault_again {again} go {SMALL}");
                self.source.ask(&call, &format!("called {again} ok"), TIMEOUT)?;
                (under_way.call, under_way.again) = (Some(id), Some(again));
            }
        }
        Ok(under_way)
    }

    /// Sends until there is no room; the number of what waits for it.
    fn fill(&mut self, mark: usize, point: &str) -> Result<u64, String> {
        let reached = format!("failpoint: {point}");
        // A peer may release ahead of what it says, but not without end.
        for _ in 0..4 * CREDITS {
            let id = self.id();
            self.source.tell(&format!("send main t_fault {id} go {SMALL}"))?;
            let said = format!("= sent {id} ");
            let deadline = Instant::now() + TIMEOUT;
            while !self.source.has_said(mark, &said) {
                if self.source.has_said(mark, &reached) {
                    return Ok(id);
                }
                if Instant::now() > deadline {
                    return Err(format!("the source neither sends {id} nor waits for room"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            self.source.reply(TIMEOUT)?;
        }
        Err("the source never has to wait for room".into())
    }

    /// Another target where the last one was.
    ///
    /// # Errors
    /// It cannot listen there.
    pub fn restart_target(&mut self) -> Result<(), String> {
        let (setting, cell, address) = (self.setting, &self.cell, &self.address);
        let journal = &self.journals[0];
        let (target, _) = start_target(setting, cell, &self.folder, "target-2", Some(address), journal)?;
        self.target = target;
        Ok(())
    }

    /// Another source in the place of the last one.
    ///
    /// # Errors
    /// It cannot connect.
    pub fn restart_source(&mut self) -> Result<(), String> {
        let source = start_source(self.setting, &self.folder, "source-2")?;
        self.past.push(self.source.lines());
        self.source = source;
        self.connect()
    }

    /// How often the target has run something, so far.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn runs(&self, id: u64) -> Result<usize, String> {
        let journal = ledger::journal(&self.journals[0])?;
        Ok(journal.iter().filter(|invocation| invocation.id == id).count())
    }

    /// Compares what was sent with what was run.
    ///
    /// # Errors
    /// Everything that does not agree.
    pub fn close_the_books(&mut self) -> Result<(), String> {
        let killed = self.cell.victim == Side::Source && self.cell.fault == Fault::Kill;
        let delivered = self.cell.transport == Transport::Shm;
        let mut ledger = Ledger::default();
        for lines in &self.past {
            ledger.take(lines, true, delivered);
        }
        ledger.take(&self.source.lines(), killed, delivered);
        ledger.take(&self.bystander.lines(), false, delivered);
        let mut ran = ledger::journal(&self.journals[0])?;
        if self.cell.victim == Side::Target {
            ran.extend(ledger::journal(&self.journals[1])?);
        }
        ledger.compare(&ran, |id| self.repeatable.contains(&id))
    }

    /// Where everybody is.
    pub fn diagnosis(&self) -> String {
        [&self.target, &self.source, &self.bystander]
            .map(Process::diagnosis)
            .concat()
    }
}

fn answered(process: &mut Process, connection: &str, ifunc: &str, id: u64) -> Result<u64, String> {
    let call = format!("call {connection} {ifunc} {id} go {SMALL}");
    process.ask(&call, &format!("called {id} ok"), TIMEOUT)?;
    executed(process, id)
}

/// Waits for a call, which is answered; the connection's number.
///
/// # Errors
/// It is not answered.
pub fn executed(process: &mut Process, id: u64) -> Result<u64, String> {
    let wait = format!("wait {id} {}", TIMEOUT.as_millis());
    let sender = process.ask(&wait, &format!("done {id} executed"), TIMEOUT * 2)?;
    sender
        .parse()
        .map_err(|_| format!("`{sender}` is no number of a connection"))
}

fn start_source(setting: &Setting, folder: &Path, name: &str) -> Result<Process, String> {
    let mut command = Command::new(setting.programs.join("fault-source"));
    command.env("FAULT_LIBRARIES", &setting.libraries);
    Process::start(&mut command, name, folder)
}

/// Starts a target, anywhere or at `address`, and waits until it is ready; where it is.
fn start_target(
    setting: &Setting,
    cell: &Cell,
    folder: &Path,
    name: &str,
    address: Option<&str>,
    journal: &Path,
) -> Result<(Process, String), String> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let anywhere = match cell.transport {
        Transport::Shm => {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            format!("shm:faults-{}-{number}", std::process::id())
        }
        Transport::Tls | Transport::Ucx | Transport::UcxPut => {
            format!("{}://127.0.0.1:0", cell.transport.name())
        }
    };
    let mut command = Command::new(setting.programs.join("fault-target"));
    command
        .env("IFUNC_ADDR", address.unwrap_or(&anywhere))
        .env("FAULT_JOURNAL", journal);
    let mut process = Process::start(&mut command, name, folder)?;
    let said = match process.reply(TIMEOUT) {
        Ok(said) => said,
        Err(why) => return Err(format!("{why}\n{}", process.diagnosis())),
    };
    match said.strip_prefix("ready ") {
        Some(address) => Ok((process, address.to_owned())),
        None => Err(format!("the target said `{said}`")),
    }
}
