//! Applies the fault of a cell to its victim, and checks the call and the other nodes.

use std::time::{Duration, Instant};

use super::Stage;
use super::scene::Group;
use crate::faults::TIMEOUT;
use crate::faults::cell::{Fault, Transport};

/// What a node logs when it loses another one.
const LOST: &str = "a node of the group was lost";
/// How long after a deadline a busy machine may report it.
const SLACK: Duration = Duration::from_secs(20);

/// Brings the call to the stage, applies the fault, and checks what follows. Returns how long the call took to end, if the node died.
///
/// # Errors
/// The first check that failed.
pub fn act(group: &mut Group<'_>, stage: Stage) -> Result<Option<Duration>, String> {
    let id = group.enter(stage)?;
    let ended = match group.cell.fault {
        Fault::Kill => Some(kill(group, stage, id)?),
        Fault::Restart => Some(restart(group, stage, id)?),
        Fault::Stop => {
            stop(group, stage, id)?;
            None
        }
    };
    group.check_journal()?;
    Ok(ended)
}

fn kill(group: &mut Group<'_>, stage: Stage, id: u64) -> Result<Duration, String> {
    let victim = stage.node();
    group.nodes[victim].kill()?;
    let took = check_end(group, stage, id)?;
    let others = check_others(group, victim)?;
    group.gives_back(others)?;
    if victim != 0 {
        // The group does not find it any more, and the error names it.
        let route = format!("{},{victim}", 3 - victim);
        let said = group.tour("main", &route)?;
        if !names_node(&said, victim) {
            return Err(format!("a tour to node {victim}, which was killed: `{said}`"));
        }
    }
    group.holds_no_more(victim)?;
    Ok(took)
}

fn restart(group: &mut Group<'_>, stage: Stage, id: u64) -> Result<Duration, String> {
    let victim = stage.node();
    group.nodes[victim].kill()?;
    group.restart(victim)?;
    let took = check_end(group, stage, id)?;
    // Until every node has noticed, calls end with errors that name the node.
    let deadline = Instant::now() + TIMEOUT;
    for (name, route) in [("main", "1,2,0"), ("other", "2,0,1")] {
        loop {
            let said = group.tour(name, route)?;
            if said.starts_with("executed ") {
                break;
            }
            if !names_node(&said, victim) && said != "indeterminate" || Instant::now() > deadline {
                return Err(format!(
                    "node {victim} was started again, and a tour over {route} by `{name}` ends with `{said}`"
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    group.gives_back("main")?;
    group.gives_back("other")?;
    group.holds_no_more(victim)?;
    Ok(took)
}

/// Checks that the call ends in time: with an error that names the victim, or with its answer if the victim had done its part. Returns how
/// long it took.
fn check_end(group: &mut Group<'_>, stage: Stage, id: u64) -> Result<Duration, String> {
    let (victim, began) = (stage.node(), Instant::now());
    let said = group.ended(id, group.deadline() + SLACK)?;
    let was_sent = stage == Stage::Forwarded;
    let fits = match said.starts_with("executed ") {
        true => was_sent,
        // Over shared memory a frame that was sent outlives its sender.
        false if was_sent && group.cell.transport == Transport::Shm => false,
        false if victim == 0 => said == "indeterminate",
        false => names_node(&said, victim),
    };
    match fits {
        true => Ok(began.elapsed()),
        false => Err(format!(
            "node {victim} was killed, and the call ends with `{said}`"
        )),
    }
}

/// Whether an error names this node.
fn names_node(said: &str, node: usize) -> bool {
    let lists = |names: &str| {
        let first = said.split(names).nth(1).unwrap_or_default();
        let mut nodes = first
            .split(|c: char| !c.is_ascii_digit())
            .take_while(|part| !part.is_empty());
        nodes.any(|number| number == node.to_string())
    };
    said.starts_with("error ") && (said.contains(&format!("node {node}")) || lists("lost meanwhile: "))
}

/// Checks that a call over the other nodes is answered. Returns the connection that it went over.
fn check_others(group: &mut Group<'_>, victim: usize) -> Result<&'static str, String> {
    let (name, route) = match victim {
        0 => ("other", "2,1"),
        1 => ("main", "2,0"),
        _ => ("main", "1,0"),
    };
    group.is_answered(name, route)?;
    Ok(name)
}

fn stop(group: &mut Group<'_>, stage: Stage, id: u64) -> Result<(), String> {
    let victim = stage.node();
    let marks: Vec<usize> = group.nodes.iter().map(|node| node.mark()).collect();
    group.nodes[victim].stop()?;
    let stopped = Instant::now();
    // It waits for the node that is stopped.
    let patient = group.send("main", "1,2", u32::MAX, TIMEOUT + group.stop())?;
    let said = group.ended(id, group.deadline())?;
    let fits = match &*said {
        "timeout" => true,
        said if said.starts_with("executed ") => stage == Stage::Forwarded,
        said => said.contains("no answer came"),
    };
    if !fits {
        return Err(format!(
            "node {victim} is stopped, and the call ends with `{said}`"
        ));
    }
    check_others(group, victim)?;
    std::thread::sleep(group.stop().saturating_sub(stopped.elapsed()));
    group.nodes[victim].resume()?;
    group.nodes[victim].go()?;
    let said = group.ended(patient, TIMEOUT)?;
    if said != "executed 2" {
        return Err(format!(
            "node {victim} was stopped, and a call that waited for it ends with `{said}`"
        ));
    }
    for (name, route) in [("main", "1,2,0"), ("other", "2,0,1")] {
        group.is_answered(name, route)?;
        group.gives_back(name)?;
    }
    for (node, mark) in group.nodes.iter().zip(marks) {
        if node.has_said(mark, LOST) {
            return Err(format!(
                "{} takes a node that is stopped for a dead one",
                node.name
            ));
        }
    }
    group.holds_no_more(usize::MAX)
}
