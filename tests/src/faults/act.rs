//! What happens to the victim, and what must be true of the survivor.

use std::time::{Duration, Instant};

use super::TIMEOUT;
use super::cell::{Fault, Side};
use super::process::Holdings;
use super::scene::{Place, Scene, UnderWay, executed};

/// What a survivor says of a peer that is gone.
const TARGET_SAYS: &str = "source left";
const SOURCE_SAYS: &str = "the target went away";
/// What a machine that has other things to do may add to a deadline of a wait.
const SLACK: Duration = Duration::from_secs(10);

/// Does it, and looks; how long it took the survivor to notice, if there was something to notice.
///
/// # Errors
/// What is not as it must be.
pub fn act(scene: &mut Scene<'_>, place: Place) -> Result<Option<Duration>, String> {
    let under_way = scene.enter(place)?;
    let noticed = match (scene.cell.victim, scene.cell.fault) {
        (Side::Source, Fault::Kill) => Some(kill_source(scene, place)?),
        (Side::Source, Fault::Restart) => {
            let noticed = kill_source(scene, place)?;
            replace_source(scene)?;
            Some(noticed)
        }
        (Side::Source, Fault::Stop) => {
            stop_source(scene, place, under_way)?;
            None
        }
        (Side::Target, Fault::Kill) => Some(kill_target(scene, place, under_way)?),
        (Side::Target, Fault::Restart) => Some(replace_target(scene, place, under_way)?),
        (Side::Target, Fault::Stop) => {
            stop_target(scene, place, under_way)?;
            None
        }
    };
    scene.close_the_books()?;
    Ok(noticed)
}

fn kill_source(scene: &mut Scene<'_>, place: Place) -> Result<Duration, String> {
    let mark = scene.target.mark();
    let mut at = Instant::now();
    scene.source.kill()?;
    if place.stands() == Some(Side::Target) {
        at = Instant::now();
        scene.target.go()?;
    }
    scene.target.says(mark, TARGET_SAYS, scene.notice())?;
    let noticed = at.elapsed();
    gives_back(scene, at, 0)?;
    scene.serves_others()?;
    Ok(noticed)
}

/// Starts a source in the place of one that was killed. To the target it is another one, and its code comes again.
fn replace_source(scene: &mut Scene<'_>) -> Result<(), String> {
    scene.restart_source()?;
    for ifunc in ["t_fault", "t_fault_late", "t_fault_again"] {
        if scene.answered(ifunc)? == scene.sender {
            return Err("the target takes the new source for the old one".into());
        }
    }
    scene.source.ask("flush main", "flushed main ok", TIMEOUT)?;
    let holds = scene.target.holdings()?;
    if !holds.within(scene.connected) {
        return Err(format!(
            "the target holds {holds:?} with the new source, {:?} with the old one",
            scene.connected
        ));
    }
    scene.serves_others()
}

fn stop_source(scene: &mut Scene<'_>, place: Place, under_way: UnderWay) -> Result<(), String> {
    let mark = scene.target.mark();
    scene.source.stop()?;
    let at = Instant::now();
    if place.stands() == Some(Side::Target) {
        scene.target.go()?;
    }
    scene.serves_others()?;
    std::thread::sleep(scene.stop().saturating_sub(at.elapsed()));
    scene.serves_others()?;
    scene.source.resume()?;
    if place.stands() == Some(Side::Source) {
        scene.source.go()?;
    }
    if let Some(id) = under_way.submitting {
        let expected = if under_way.is_send { "sent" } else { "called" };
        let said = scene.source.reply(TIMEOUT)?;
        if said != format!("{expected} {id} ok") {
            return Err(format!("the source was stopped, and says `{said}`"));
        }
    }
    let submitted = under_way.submitting.filter(|_| !under_way.is_send);
    goes_on(scene, &[submitted, under_way.call, under_way.again])?;
    if scene.target.has_said(mark, TARGET_SAYS) {
        return Err("the target takes a source that is stopped for a dead one".into());
    }
    Ok(())
}

/// The same connection goes on: these calls are answered over it, and so is another one.
fn goes_on(scene: &mut Scene<'_>, calls: &[Option<u64>]) -> Result<(), String> {
    let mut senders = Vec::new();
    for &id in calls.iter().flatten() {
        senders.push(executed(&mut scene.source, id)?);
    }
    scene.source.ask("flush main", "flushed main ok", TIMEOUT)?;
    for ifunc in ["t_fault", "t_fault_late"] {
        senders.push(scene.answered(ifunc)?);
    }
    match senders.iter().find(|&&sender| sender != scene.sender) {
        Some(other) => Err(format!(
            "the connection was number {}, and now is number {other}",
            scene.sender
        )),
        None => Ok(()),
    }
}

fn kill_target(scene: &mut Scene<'_>, place: Place, under_way: UnderWay) -> Result<Duration, String> {
    let mark = scene.source.mark();
    scene.target.kill()?;
    if place.stands() == Some(Side::Source) {
        scene.source.go()?;
    }
    let noticed = hears(scene, place, under_way, mark)?;
    // It was tried long enough to reach the target again, or is tried now: for so long, and no longer.
    let (id, called) = scene.call()?;
    if called != "peer-gone" {
        return Err(format!("call {id} of a target that was killed: `{called}`"));
    }
    scene.serves_others()?;
    gives_back(scene, Instant::now(), OF_A_SOURCE)?;
    // What is left is told; then nothing is.
    scene.source.ask("flush main", "flushed main", TIMEOUT)?;
    scene.source.ask("flush main", "flushed main", TIMEOUT)?;
    scene.source.ask("drop main", "dropped main", TIMEOUT)?;
    gives_back(scene, Instant::now(), 0)?;
    Ok(noticed)
}

fn replace_target(scene: &mut Scene<'_>, place: Place, under_way: UnderWay) -> Result<Duration, String> {
    let mark = scene.source.mark();
    scene.target.kill()?;
    scene.restart_target()?;
    if place.stands() == Some(Side::Source) {
        scene.source.go()?;
    }
    let noticed = hears(scene, place, under_way, mark)?;
    // What went wrong is told once; then all is well, unasked.
    if place == Place::NoRoom {
        scene.source.ask("flush main", "flushed main", TIMEOUT)?;
    }
    for ifunc in ["t_fault", "t_fault_late", "t_fault_again"] {
        scene.answered(ifunc)?;
    }
    scene.source.ask("flush main", "flushed main ok", TIMEOUT)?;
    let holds = scene.source.holdings()?;
    if !holds.within(scene.connected) {
        return Err(format!(
            "the source holds {holds:?} with the new target, {:?} with the old one",
            scene.connected
        ));
    }
    scene.serves_others()?;
    Ok(noticed)
}

/// The source hears of its target's end, says so behind `mark`, and everything that was under way ends as it must; how soon.
fn hears(scene: &mut Scene<'_>, place: Place, under_way: UnderWay, mark: usize) -> Result<Duration, String> {
    let at = Instant::now();
    let restarted = scene.cell.fault == Fault::Restart;
    // A killed target is looked for, for a while.
    let within = scene.notice() + scene.window() + if restarted { TIMEOUT } else { SLACK };
    let mut ids = vec![under_way.call];
    if place == Place::Asleep {
        if restarted {
            // Nothing was under way: nothing is told.
            scene.answered("t_fault")?;
        } else {
            let (id, called) = scene.call()?;
            match &*called {
                "ok" => ids.push(Some(id)),
                "peer-gone" => {}
                _ => return Err(format!("call {id} of a target that was killed: `{called}`")),
            }
        }
    }
    if let Some(id) = under_way.submitting {
        let said = scene.source.reply(within)?;
        let is = said
            .split_once(' ')
            .and_then(|(_, rest)| rest.strip_prefix(&format!("{id} ")));
        let fits: &[&str] = match (place, restarted) {
            // It was never sent, or is reported by what becomes of it.
            (Place::BetweenFragments | Place::FragmentsTaken, _) => &["ok", "peer-gone"],
            (Place::BeforeCommit, _) => &["ok"],
            (Place::ImageSent, false) => &["ok", "peer-gone"],
            (Place::ImageSent, true) => &["ok"],
            // Of what was sent before it is told that it may not have run; it was not sent.
            _ => &["earlier indeterminate"],
        };
        match is {
            Some(is) if fits.contains(&is) => {
                if is == "ok" && !under_way.is_send {
                    ids.push(Some(id));
                }
            }
            _ => return Err(format!("the source says `{said}`; expected: {fits:?}")),
        }
    }
    for id in ids.into_iter().flatten() {
        let said = scene.source.ask(
            &format!("wait {id} {}", within.as_millis()),
            &format!("done {id}"),
            within * 2,
        )?;
        let fits: &[&str] = match (place, restarted) {
            (Place::BetweenFragments | Place::FragmentsTaken, _) => &["peer-gone"],
            // The new target may have been there before it was sent.
            (Place::ImageSent, true) => &["indeterminate", "executed"],
            _ => &["indeterminate"],
        };
        if !fits.iter().any(|fits| said.starts_with(fits)) {
            return Err(format!("call {id}: `{said}`; expected: {fits:?}"));
        }
    }
    let noticed = at.elapsed();
    scene.source.says(mark, SOURCE_SAYS, scene.notice())?;
    if noticed > within {
        return Err(format!(
            "the source noticed after {noticed:?}; the deadline is {within:?}"
        ));
    }
    if let Some(id) = under_way.again {
        if restarted {
            executed(&mut scene.source, id)?;
        } else {
            let wait = format!("wait {id} {}", within.as_millis());
            let said = scene.source.ask(&wait, &format!("done {id}"), within * 2)?;
            if said != "indeterminate" {
                return Err(format!(
                    "call {id}, which no target is left to run again: `{said}`"
                ));
            }
        }
    }
    Ok(noticed)
}

fn stop_target(scene: &mut Scene<'_>, place: Place, under_way: UnderWay) -> Result<(), String> {
    let mark = scene.source.mark();
    scene.target.stop()?;
    let at = Instant::now();
    if place.stands() == Some(Side::Source) {
        scene.source.go()?;
    }
    let mut calls = vec![under_way.call, under_way.again];
    let mut unknown = None;
    if place == Place::Asleep {
        let (id, called) = scene.call()?;
        if called != "ok" {
            return Err(format!("call {id} of a target that is stopped: `{called}`"));
        }
        calls.push(Some(id));
    }
    if let Some(id) = under_way.submitting {
        let said = scene.source.reply(scene.timeout() + SLACK)?;
        let large = matches!(place, Place::BetweenFragments | Place::FragmentsTaken);
        match &*said {
            said if said.ends_with(" ok") && !large && !under_way.is_send => calls.push(Some(id)),
            said if said.ends_with(" timeout") && large => unknown = Some(id),
            said if said.ends_with(" timeout") && under_way.is_send => {}
            _ => return Err(format!("of a target that is stopped the source says `{said}`")),
        }
    }
    let short = scene.stop() / 5;
    for &id in calls.iter().flatten() {
        let wait = format!("wait {id} {}", short.as_millis());
        let began = Instant::now();
        scene
            .source
            .ask(&wait, &format!("done {id} timeout"), short + SLACK)?;
        if began.elapsed() < short {
            return Err(format!("a wait of {short:?} ended after {:?}", began.elapsed()));
        }
    }
    scene.serves_others()?;
    std::thread::sleep(scene.stop().saturating_sub(at.elapsed()));
    scene.target.resume()?;
    if place.stands() == Some(Side::Target) {
        scene.target.go()?;
    }
    goes_on(scene, &calls)?;
    if let Some(id) = unknown
        && scene.runs(id)? != 1
    {
        return Err(format!("{id} was on its way, and ran {} times", scene.runs(id)?));
    }
    if scene.source.has_said(mark, SOURCE_SAYS) {
        return Err("the source takes a target that is stopped for a dead one".into());
    }
    Ok(())
}

/// Descriptors that a source has without a connection: its own bell.
const OF_A_SOURCE: usize = 1;

/// Everything that the survivor held because of the victim is given back, but for so many descriptors.
fn gives_back(scene: &Scene<'_>, since: Instant, own: usize) -> Result<(), String> {
    let within = scene.notice();
    let alone = Holdings {
        descriptors: scene.alone.descriptors + own,
        ..scene.alone
    };
    loop {
        let holds = scene.survivor().holdings()?;
        if holds.within(alone) {
            return Ok(());
        }
        if since.elapsed() > within {
            return Err(format!(
                "after {within:?} the {} holds {holds:?}, and may hold {alone:?}",
                scene.survivor().name,
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
