//! Which run a seed draws: nodes, sources, and how invocations behave.

use ifunc_proto::node::{Node, NodeConfig};

use super::host::Manner;
use super::ledger::Ledger;
use super::{ACTIONS, Action, MAX_ANSWER, MAX_PAYLOAD, Mesh, SimulatedNode, Source};
use crate::report::Coverage;
use crate::rng::Rng;

/// What a run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// A bit of everything.
    Mixed,
    /// Two nodes flood each other through one credit in each direction.
    Flood,
    /// One scope of thousands of invocations, whose weight returns to one node.
    Fan,
}

/// One in so many groups is a flood, and one in so many a scope of many.
const FLOODS: u64 = 5;
const FANS: u64 = 40;

impl Scenario {
    fn of(seed: u64) -> Self {
        let group = seed / 2;
        if group.is_multiple_of(FLOODS) {
            Self::Flood
        } else if group % FANS == 7 {
            Self::Fan
        } else {
            Self::Mixed
        }
    }
}

/// The seed of a flood.
pub(crate) fn flood(index: u64) -> u64 {
    2 * FLOODS * index + 1
}

/// How the invocations of a run behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taste {
    /// Of 8 invocations, so many forward themselves.
    pub(super) forwards: usize,
    /// Most invocations that one sends.
    pub(super) sends: usize,
    /// What is sent goes to another node.
    pub(super) leaves: bool,
    /// Of 8 submissions of sources, so many are calls, in a scope, streamed, or do not travel.
    pub(super) calls: usize,
    pub(super) scoped: usize,
    pub(super) streamed: usize,
    pub(super) deadlines: usize,
    pub(super) plain: usize,
    /// Submissions of a step.
    pub(super) burst: usize,
    /// Invocations after which sources submit nothing more.
    pub(super) records: usize,
    /// Longest payload.
    pub(super) payload: usize,
    pub(super) window: u32,
    pub(super) hop_limit: u16,
    pub(super) outbox: usize,
}

impl Taste {
    fn draw(rng: &mut Rng, scenario: Scenario) -> Self {
        let taste = Self {
            forwards: rng.pick(&[1, 3, 5, 7]),
            sends: rng.pick(&[0, 1, 2, 3]),
            leaves: rng.one_in(4),
            calls: rng.pick(&[0, 5, 7, 8]),
            scoped: rng.pick(&[0, 2, 5, 8]),
            streamed: rng.pick(&[0, 3, 8]),
            deadlines: rng.pick(&[0, 0, 0, 2]),
            plain: rng.pick(&[0, 0, 1, 4]),
            burst: rng.pick(&[1, 1, 4]),
            records: usize::MAX,
            payload: rng.pick(&[4, 40, 300, 900]),
            window: rng.pick(&[1, 2, 5]),
            hop_limit: rng.pick(&[0, 3, 12, 40]),
            outbox: rng.pick(&[1500, 6000, 40_000]),
        };
        match scenario {
            Scenario::Mixed => taste,
            Scenario::Flood => Self {
                forwards: 7,
                leaves: !rng.one_in(4),
                burst: rng.pick(&[4, 8]),
                records: 4_000,
                hop_limit: rng.pick(&[12, 40, 100]),
                outbox: rng.pick(&[1500, 6000]),
                ..taste
            },
            Scenario::Fan => Self {
                forwards: 1,
                sends: 3,
                calls: rng.pick(&[0, 0, 2]),
                scoped: 8,
                streamed: 0,
                deadlines: 0,
                plain: 0,
                burst: 8,
                records: 15_000,
                payload: rng.pick(&[4, 40]),
                hop_limit: 12,
                outbox: 200_000,
                ..taste
            },
        }
    }
}

impl Mesh {
    pub(crate) fn new(seed: u64, is_traced: bool) -> Self {
        let mut rng = Rng::of_step(seed, u64::MAX - 7);
        let scenario = Scenario::of(seed);
        let is_faultless = scenario != Scenario::Mixed || rng.one_in(2);
        let members = match scenario {
            Scenario::Mixed => rng.pick(&[2, 2, 3, 4, 6]),
            Scenario::Flood => 2,
            Scenario::Fan => rng.pick(&[2, 4]),
        };
        let taste = Taste::draw(&mut rng, scenario);
        let mut weights = ACTIONS.map(|(_, weight)| weight);
        for weight in &mut weights {
            *weight = *weight * rng.pick(&[1, 2, 2, 4, 8]) / 2;
        }
        for (weight, (action, _)) in weights.iter_mut().zip(ACTIONS) {
            let is_fault = matches!(action, Action::Kill | Action::Restart | Action::Cut);
            // A scope of many ends once, and time passes with each step.
            let is_untimely = matches!(action, Action::Finish | Action::Time | Action::Settle);
            if is_faultless && is_fault || scenario == Scenario::Fan && is_untimely {
                *weight = 0;
            }
        }
        let mut mesh = Self {
            scenario,
            nodes: Vec::new(),
            members,
            sources: Vec::new(),
            links: Vec::new(),
            ledger: Ledger {
                is_sparse: scenario == Scenario::Mixed && rng.one_in(3),
                ..Ledger::default()
            },
            now: 1,
            weights,
            taste,
            is_faultless,
            has_one_credit: scenario == Scenario::Mixed && rng.one_in(4),
            has_programs: scenario == Scenario::Mixed && rng.one_in(3),
            coverage: Coverage::default(),
            steps: 0,
            trace: is_traced.then(Vec::new),
        };
        for index in 0..members {
            let node = mesh.new_node(&mut rng, Some(index), 1);
            mesh.nodes.push(node);
        }
        let sources = match scenario {
            Scenario::Mixed => 1 + rng.below(3),
            Scenario::Flood => 2 + rng.below(2),
            Scenario::Fan => 1,
        };
        for at in 0..sources {
            let target = if scenario == Scenario::Flood {
                at % 2
            } else {
                rng.below(members)
            };
            mesh.sources.push(Source {
                target,
                is_duplex: rng.one_in(2),
            });
            let home = mesh.new_node(&mut rng, None, 1);
            mesh.nodes.push(home);
        }
        mesh.coverage.groups = 1;
        mesh.coverage.floods = (scenario == Scenario::Flood).into();
        mesh.coverage.fans = (scenario == Scenario::Fan).into();
        mesh.connect_all(&mut rng);
        mesh
    }

    /// A node of the group, or with the number `None` that of a source.
    pub(super) fn new_node(&self, rng: &mut Rng, number: Option<usize>, epoch: u64) -> SimulatedNode {
        let is_fan = self.scenario == Scenario::Fan;
        let config = NodeConfig {
            number: number.map(|number| number as u32),
            epoch,
            seed: rng.next(),
            outbox_bytes: self.taste.outbox,
            max_slots: rng.pick(&[2, 20, 1000]),
            // Four times the most slots of any node, as in the runtime.
            max_unread: 4000,
            max_scopes: rng.pick(&[40, 1000]),
            scope_weight: if is_fan {
                1 << 48
            } else {
                rng.pick(&[2, 5, 1 << 48])
            },
            max_window: 8,
            max_payload: MAX_PAYLOAD,
            max_answer: MAX_ANSWER,
            grace: 10_000_000_000,
        };
        let mut node = Node::new(config);
        let others = (0..self.members).filter(|&other| number.is_some() && number != Some(other));
        let known = others.filter(|_| !self.ledger.is_sparse);
        known.for_each(|other| node.add(other as u32));
        SimulatedNode {
            is_up: true,
            epoch,
            manner: if is_fan { Manner::AtOnce } else { Manner::draw(rng) },
            node,
            ports: Vec::new(),
            running: Vec::new(),
            wanted: Vec::new(),
        }
    }
}
