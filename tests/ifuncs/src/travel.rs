//! Ifuncs that travel through a group of nodes.

use core::sync::atomic::{AtomicU64, Ordering};

use ifunc::prelude::*;
use ifunc::{Onward, TravelError};

use super::State;

/// Most nodes of a tour.
pub const LONGEST: usize = 32;

/// A tour over nodes.
#[ifunc::layout]
#[derive(Clone, Copy)]
pub struct Tour {
    /// The numbers of the nodes, in their order.
    pub route: [u32; LONGEST],
    /// How many of them were visited.
    pub at: u32,
    /// How many there are.
    pub len: u32,
    /// The sum of what the visits added up.
    pub sum: u64,
}

impl Tour {
    /// A tour that begins at the first target.
    #[must_use]
    pub fn new(nodes: &[u32]) -> Self {
        let mut tour = Self {
            route: [0; LONGEST],
            at: 0,
            len: nodes.len() as u32,
            sum: 0,
        };
        tour.route[..nodes.len()].copy_from_slice(nodes);
        tour
    }
}

/// Adds this node to a tour, and goes on to the next one by `F`. The last one answers the sum.
fn visit<F>(mut tour: Tour, ctx: &mut Context) -> Onward<u64>
where
    F: for<'a> Ifunc<Payload<'a> = Tour>,
{
    tour.sum += u64::from(ctx.node().unwrap_or(1000));
    match tour.route[..tour.len as usize].get(tour.at as usize) {
        None => Onward::Answer(tour.sum),
        Some(&next) => {
            tour.at += 1;
            match ctx.forward::<F>(next, &tour) {
                Ok(()) => Onward::Forwarded,
                Err(why) => panic!("to node {next}: {why}"),
            }
        }
    }
}

/// Counts a visit, and goes on to the next node of the tour. The last one answers the sum of the numbers of all nodes.
#[ifunc]
pub fn t_tour(tour: Tour, state: &mut State, ctx: &mut Context) -> Onward<u64> {
    state.changes += 1;
    visit::<t_tour>(tour, ctx)
}

/// The same, and panics at the end.
#[ifunc]
pub fn t_tour_panics(mut tour: Tour, state: &mut State, ctx: &mut Context) -> Onward<u64> {
    state.changes += 1;
    let Some(&next) = tour.route[..tour.len as usize].get(tour.at as usize) else {
        panic!("lost on node {}", ctx.node().unwrap_or(1000));
    };
    tour.at += 1;
    match ctx.forward::<t_tour_panics>(next, &tour) {
        Ok(()) => Onward::Forwarded,
        Err(why) => panic!("to node {next}: {why}"),
    }
}

/// The same, and takes a minute at the end.
#[ifunc]
pub fn t_tour_slow(mut tour: Tour, state: &mut State, ctx: &mut Context) -> Onward<u64> {
    state.changes += 1;
    let Some(&next) = tour.route[..tour.len as usize].get(tour.at as usize) else {
        super::take_a_while(60_000);
        return Onward::Answer(0);
    };
    tour.at += 1;
    match ctx.forward::<t_tour_slow>(next, &tour) {
        Ok(()) => Onward::Forwarded,
        Err(why) => panic!("to node {next}: {why}"),
    }
}

/// A tour of the fault matrix.
#[ifunc::layout]
#[derive(Clone, Copy)]
pub struct FaultTour {
    /// Its number.
    pub id: u64,
    /// The numbers of the nodes behind the first target.
    pub route: [u32; 4],
    /// How many of them were visited.
    pub at: u32,
    /// How many there are.
    pub len: u32,
    /// The visit that stands still.
    pub stand: u32,
    /// Zero.
    pub reserved: u32,
}

/// The answer of a tour of the fault matrix.
#[ifunc::layout]
#[derive(Clone, Copy)]
pub struct FaultAnswer {
    /// The tour's number.
    pub id: u64,
    /// The node that answers.
    pub node: u64,
}

/// Writes each visit down, stands still on one, and answers on the last node.
#[ifunc]
pub fn t_fault_tour(mut tour: FaultTour, _state: &State, ctx: &mut Context) -> Onward<FaultAnswer> {
    let node = ctx.node().unwrap_or(u32::MAX);
    super::fault_journal(tour.id << 8 | u64::from(tour.at), u64::from(node));
    if tour.stand == tour.at {
        super::fault_stand();
    }
    let Some(&next) = tour.route.iter().take(tour.len as usize).nth(tour.at as usize) else {
        return Onward::Answer(FaultAnswer {
            id: tour.id,
            node: u64::from(node),
        });
    };
    tour.at += 1;
    match ctx.forward::<t_fault_tour>(next, &tour) {
        Ok(()) => Onward::Forwarded,
        Err(why) => panic!("to node {next}: {why}"),
    }
}

/// Forwards itself, and answers too.
#[ifunc]
pub fn t_answers_twice(next: u32, state: &mut State, ctx: &mut Context) -> u64 {
    state.changes += 1;
    let _ = ctx.forward::<t_answers_twice>(next, &next);
    state.changes
}

/// Spreads over a group: `depth` generations, each invocation with `fan` others.
#[ifunc::layout]
#[derive(Clone, Copy)]
pub struct Spread {
    /// Generations that follow.
    pub depth: u32,
    /// Invocations that each one sends.
    pub fan: u32,
}

/// Sends `fan` others to the nodes of the group in turn.
#[ifunc]
pub fn t_spread(spread: Spread, state: &mut State, ctx: &mut Context) {
    state.changes += 1;
    if spread.depth == 0 {
        return;
    }
    let next = Spread {
        depth: spread.depth - 1,
        fan: spread.fan,
    };
    for n in 0..spread.fan as usize {
        let peers = ctx.peers();
        let node = match peers.get((n + state.changes as usize) % (peers.len() + 1)) {
            Some(&node) => node,
            None => ctx.node().unwrap_or_default(),
        };
        if let Err(why) = ctx.send::<t_spread>(node, &next)
            && why != TravelError::Busy
        {
            panic!("to node {node}: {why}");
        }
    }
}

/// Numbers to count.
#[ifunc::layout]
#[derive(Clone, Copy)]
pub struct Count {
    /// The first.
    pub from: u64,
    /// The one after the last.
    pub to: u64,
}

/// Answers in parts, however many: waits on its own node while the source has not taken enough.
#[ifunc]
pub fn t_count_on(mut count: Count, state: &mut State, ctx: &mut Context) -> Onward<u64> {
    state.changes += 1;
    while count.from < count.to {
        match ctx.reply(&count.from) {
            Ok(()) => count.from += 1,
            Err(TravelError::Window) => {
                let here = ctx.node().unwrap_or_default();
                return match ctx.forward::<t_count_on>(here, &count) {
                    Ok(()) => Onward::Forwarded,
                    Err(why) => panic!("number {}: {why}", count.from),
                };
            }
            Err(why) => panic!("number {}: {why}", count.from),
        }
    }
    Onward::Replied
}

/// Answers in parts: the numbers below the payload, then the payload.
#[ifunc]
pub fn t_count_up(to: u64, state: &mut State, ctx: &mut Context) -> u64 {
    state.changes += 1;
    for n in 0..to {
        if let Err(why) = ctx.reply(&n) {
            panic!("part {n}: {why}");
        }
    }
    to
}

/// A tour over nodes that serve on several threads. The last one answers the sum of the numbers of all nodes.
#[ifunc]
pub fn t_shared_tour(tour: Tour, visits: &AtomicU64, ctx: &mut Context) -> Onward<u64> {
    visits.fetch_add(1, Ordering::Relaxed);
    visit::<t_shared_tour>(tour, ctx)
}

/// Spreads over a group whose nodes serve on several threads.
#[ifunc]
pub fn t_shared_spread(spread: Spread, visits: &AtomicU64, ctx: &mut Context) {
    let visited = visits.fetch_add(1, Ordering::Relaxed);
    if spread.depth == 0 {
        return;
    }
    let next = Spread {
        depth: spread.depth - 1,
        fan: spread.fan,
    };
    for n in 0..spread.fan as usize {
        let peers = ctx.peers();
        let node = match peers.get((n + visited as usize) % (peers.len() + 1)) {
            Some(&node) => node,
            None => ctx.node().unwrap_or_default(),
        };
        if let Err(why) = ctx.send::<t_shared_spread>(node, &next) {
            panic!("to node {node}: {why}");
        }
    }
}

/// Answers in parts on nodes that serve on several threads, and goes on to the next node after each ten.
#[ifunc]
pub fn t_shared_count(mut count: Count, visits: &AtomicU64, ctx: &mut Context) -> Onward<u64> {
    visits.fetch_add(1, Ordering::Relaxed);
    let here = ctx.node().unwrap_or_default();
    let next = ctx.peers().first().copied().unwrap_or(here);
    while count.from < count.to {
        let result = ctx.reply(&count.from);
        let node = match result {
            Ok(()) => {
                count.from += 1;
                if !count.from.is_multiple_of(10) {
                    continue;
                }
                next
            }
            Err(TravelError::Window) => here,
            Err(why) => panic!("number {}: {why}", count.from),
        };
        return match ctx.forward::<t_shared_count>(node, &count) {
            Ok(()) => Onward::Forwarded,
            Err(why) => panic!("number {}: {why}", count.from),
        };
    }
    Onward::Replied
}

/// What a node leaves on the next one.
#[ifunc::layout]
#[derive(Clone, Copy)]
pub struct Note {
    /// The node that wrote it.
    pub from: u32,
    /// The sum of the tour there.
    pub sum: u32,
}

/// Keeps a note: the state counts what was noted.
#[ifunc]
pub fn t_note(note: Note, state: &mut State) {
    state.counter += u64::from(note.sum);
}

/// Ends a tour of `t_relay` with twice its sum.
#[ifunc]
pub fn t_finish_tour(tour: Tour, state: &mut State, ctx: &mut Context) -> u64 {
    state.changes += 1;
    2 * (tour.sum + u64::from(ctx.node().unwrap_or(1000)))
}

/// Visits nodes: leaves a note by another entry on the next one each time, and lets a third entry end on the last one.
#[ifunc]
pub fn t_relay(mut tour: Tour, state: &mut State, ctx: &mut Context) -> Onward<u64> {
    state.changes += 1;
    let here = ctx.node().unwrap_or(1000);
    tour.sum += u64::from(here);
    let route = &tour.route[..tour.len as usize];
    let Some(&next) = route.get(tour.at as usize) else {
        return Onward::Answer(tour.sum);
    };
    let note = Note {
        from: here,
        sum: tour.sum as u32,
    };
    if let Err(why) = ctx.send::<t_note>(next, &note) {
        panic!("a note for node {next}: {why}");
    }
    tour.at += 1;
    let forwarded = if tour.at == tour.len {
        ctx.forward::<t_finish_tour>(next, &tour)
    } else {
        ctx.forward::<t_relay>(next, &tour)
    };
    match forwarded {
        Ok(()) => Onward::Forwarded,
        Err(why) => panic!("to node {next}: {why}"),
    }
}

/// Answers in parts what was noted on each node, from node `from` on.
#[ifunc]
pub fn t_noted(mut count: Count, state: &State, ctx: &mut Context) -> Onward<u64> {
    let here = u64::from(ctx.node().unwrap_or_default());
    if here == count.from {
        if let Err(why) = ctx.reply(&state.counter) {
            panic!("what node {here} noted: {why}");
        }
        count.from += 1;
    }
    if count.from >= count.to {
        return Onward::Replied;
    }
    match ctx.forward::<t_noted>(count.from as u32, &count) {
        Ok(()) => Onward::Forwarded,
        Err(why) => panic!("to node {}: {why}", count.from),
    }
}
