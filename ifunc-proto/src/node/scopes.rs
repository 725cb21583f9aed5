//! Scopes, which end when everything that was sent in them has ended: weight throwing (Mattern 1989, Huang 1989).

use ifunc_abi::frame::{Header, Kind};
use ifunc_abi::travel::{ReturnHead, ScopeReport, SlotRef};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::outbox::{Message, Sendable};
use super::{Event, Node, Timer};
use crate::host::MalformedFrame;
use crate::server::MAX_NODE_FRAME;

/// Most weight of an invocation. A thousand of them fit into a returned weight many times over.
const MAX_WEIGHT: u64 = 1 << 48;
/// Nanoseconds without a return after which a scope ends that lost a node.
const STUCK: u64 = 1_000_000_000;
/// Returns to one scope that are sent without waiting for more.
const MANY: u32 = 1000;
/// Invocations of a scope that pay for a frame which returns its weight.
const WORK: u32 = 256;
/// Nanoseconds that returns wait for more, before they are sent without being paid for. Doubled each time.
const DELAY: u64 = 100_000;
/// Most times that it is doubled: 51 ms.
const MAX_DOUBLINGS: u32 = 9;
/// Scopes for which what they paid is remembered while nothing is returned to them.
const KEPT: usize = 256;
/// Bytes after which no other scope's return is added to a frame. A report is shorter.
const FULL_FRAME: usize = MAX_NODE_FRAME / 2;

/// A scope whose weight is out.
#[derive(Debug)]
pub(super) struct Scope<O> {
    root: Root<O>,
    /// The weight that is out.
    outstanding: u128,
    report: ScopeReport,
    /// When weight returned last.
    progress_at: u64,
    /// The nodes that were lost since it began.
    lost: Vec<u32>,
}

/// What a scope is for.
#[derive(Debug)]
enum Root<O> {
    /// A source's scope. `finish`: the source awaits its end.
    Source {
        connection: u64,
        number: u32,
        finish: Option<O>,
    },
    /// Weight of another scope that could not be divided. It returns when this scope ends.
    Weight(SlotRef, u64),
}

/// What is returned to a scope of another node.
#[derive(Debug, Default)]
pub(super) struct Returns {
    weight: u64,
    report: ScopeReport,
    /// How often weight was added.
    count: u32,
    /// When the first was.
    since: u64,
    /// Invocations of the scope that have not paid for a frame.
    work: u32,
    /// Frames that were sent without being paid for.
    debt: u32,
}

impl Returns {
    pub(super) fn is_owed(&self) -> bool {
        self.count > 0
    }

    /// When what is owed is sent at the latest. It stays while it is owed.
    fn due_at(&self) -> u64 {
        self.since.saturating_add(DELAY << self.debt.min(MAX_DOUBLINGS))
    }

    /// Takes what is returned.
    fn take(&mut self) -> (u64, ScopeReport) {
        self.count = 0;
        if self.work >= WORK {
            self.work -= WORK;
            self.debt = self.debt.saturating_sub(1);
        } else {
            self.debt = (self.debt + 1).min(MAX_DOUBLINGS);
        }
        (std::mem::take(&mut self.weight), std::mem::take(&mut self.report))
    }
}

/// A weight that a node stated.
pub(super) fn checked(weight: u64) -> u64 {
    weight.min(MAX_WEIGHT)
}

impl<I: Sendable, O: Clone> Node<I, O> {
    /// Issues the weight of an invocation that a source sends in its scope. `None`: there are too many scopes.
    pub(super) fn issue_weight(&mut self, connection: u64, number: u32, now: u64) -> Option<(SlotRef, u64)> {
        let key = (connection, number);
        let (index, nonce) = match self.source_scopes.get(&key) {
            Some(&scope) => scope,
            None if self.source_scopes.len() >= self.config.max_scopes => return None,
            None => {
                let root = Root::Source {
                    connection,
                    number,
                    finish: None,
                };
                let scope = self.open_scope(root, now);
                self.source_scopes.insert(key, scope);
                scope
            }
        };
        let weight = self.scope_weight();
        self.scopes.get_mut(index, nonce)?.outstanding += u128::from(weight);
        Some((SlotRef::new(self.me(), index, nonce), weight))
    }

    /// The weight of an invocation that a scope issues.
    fn scope_weight(&self) -> u64 {
        self.config.scope_weight.clamp(2, MAX_WEIGHT)
    }

    fn open_scope(&mut self, root: Root<O>, now: u64) -> (u32, u64) {
        let nonce = self.nonces.next();
        let scope = Scope {
            root,
            outstanding: 0,
            report: ScopeReport::default(),
            progress_at: now,
            lost: Vec::new(),
        };
        (self.scopes.insert(nonce, scope), nonce)
    }

    /// Divides an invocation's weight among those that it sent, and returns one part with its outcome.
    pub(super) fn divide(
        &mut self,
        mut scope: SlotRef,
        mut weight: u64,
        sent: &mut [(u32, Message<I>)],
        report: &ScopeReport,
        now: u64,
    ) {
        if !scope.is_some() {
            return;
        }
        let count = sent.len() as u64;
        if count == 0 {
            self.return_weight(scope, weight, report, now);
            return;
        }
        if weight <= count {
            let issued = self.scope_weight().max(count + 1);
            let (index, nonce) = self.open_scope(Root::Weight(scope, weight), now);
            if let Some(own) = self.scopes.get_mut(index, nonce) {
                own.outstanding = u128::from(issued);
            }
            scope = SlotRef::new(self.me(), index, nonce);
            weight = issued;
        }
        let share = (weight - 1) / count;
        for (_, message) in sent {
            message.head.scope = scope;
            message.head.weight = U64::new(share);
        }
        self.return_weight(scope, weight - share * count, report, now);
    }

    /// Returns weight to a scope, on whatever node.
    pub(super) fn return_weight(&mut self, scope: SlotRef, weight: u64, report: &ScopeReport, now: u64) {
        if scope.node.get() == self.me() {
            self.weight_returned(scope, weight, report, now);
            return;
        }
        self.make_room_for_returns();
        let Some(member) = self.members.get_mut(scope.node.get()) else {
            return;
        };
        if member.owed >= self.config.max_unread && !self.returns.get(&scope).is_some_and(Returns::is_owed) {
            member.overflow();
            return;
        }
        let returns = self.returns.entry(scope).or_default();
        if !returns.is_owed() {
            returns.since = now;
            member.owed += 1;
            self.owed.insert((returns.due_at(), scope));
        }
        returns.weight = returns.weight.saturating_add(weight);
        returns.report.add(report);
        returns.count += 1;
        if returns.count >= MANY {
            self.returns_are_due(scope.node.get());
        }
    }

    /// An invocation of a scope arrived: it pays for the frames that return its weight.
    pub(super) fn count_work(&mut self, scope: SlotRef) {
        if scope.is_some() && scope.node.get() != self.me() {
            self.make_room_for_returns();
            let returns = self.returns.entry(scope).or_default();
            returns.work = (returns.work + 1).min(4 * WORK);
        }
    }

    /// Forgets scopes to which nothing is returned.
    fn make_room_for_returns(&mut self) {
        if self.returns.len() >= KEPT && self.returns.len() >= 2 * self.owed_at_last_sweep {
            self.returns.retain(|_, returns| returns.is_owed());
            self.owed_at_last_sweep = self.returns.len();
        }
    }

    /// Weight returned to a scope of this node.
    fn weight_returned(&mut self, scope: SlotRef, weight: u64, report: &ScopeReport, now: u64) {
        let (mut at, mut weight, mut report) = (scope, weight, report.clone());
        // A scope that ends may return the weight that another scope of this node waits for.
        loop {
            let (index, nonce) = (at.slot.get(), at.nonce.get());
            let Some(scope) = self.scopes.get_mut(index, nonce) else {
                return;
            };
            let Some(left) = scope.outstanding.checked_sub(u128::from(weight)) else {
                return;
            };
            scope.outstanding = left;
            scope.report.add(&report);
            scope.progress_at = now;
            if left > 0 {
                return;
            }
            let Some(parent) = self.scope_ended(index, nonce) else {
                return;
            };
            (at, weight, report) = parent;
            if at.node.get() != self.me() {
                self.return_weight(at, weight, &report, now);
                return;
            }
        }
    }

    /// A scope ended. Returns the weight that it holds of another one.
    fn scope_ended(&mut self, index: u32, nonce: u64) -> Option<(SlotRef, u64, ScopeReport)> {
        let scope = self.scopes.get_mut(index, nonce)?;
        if matches!(scope.root, Root::Source { finish: None, .. }) {
            return None;
        }
        let scope = self.scopes.remove(index, nonce)?;
        match scope.root {
            Root::Weight(parent, weight) => Some((parent, weight, scope.report)),
            Root::Source {
                connection,
                number,
                finish,
            } => {
                self.source_scopes.remove(&(connection, number));
                if let Some(origin) = finish {
                    let report = Box::new(scope.report);
                    self.events.push_back(Event::Finished { origin, report });
                }
                None
            }
        }
    }

    /// A source awaits the end of its scope: [`Event::Finished`].
    pub fn finish(&mut self, connection: u64, number: u32, origin: O, now: u64) {
        let Some(&(index, nonce)) = self.source_scopes.get(&(connection, number)) else {
            let report = Box::default();
            self.events.push_back(Event::Finished { origin, report });
            return;
        };
        if let Some(scope) = self.scopes.get_mut(index, nonce) {
            if let Root::Source { finish, .. } = &mut scope.root {
                *finish = Some(origin);
            }
            if scope.outstanding == 0 {
                self.scope_ended(index, nonce);
            } else if !scope.lost.is_empty() {
                let at = now.max(scope.progress_at.saturating_add(STUCK));
                self.timers.insert((at, Timer::Scope(index, nonce)));
            }
        }
    }

    pub(super) fn forget_scopes(&mut self, connection: u64) {
        let scopes = &mut self.scopes;
        self.source_scopes.retain(|key, &mut (index, nonce)| {
            let is_kept = key.0 != connection;
            if !is_kept {
                scopes.remove(index, nonce);
            }
            is_kept
        });
    }

    /// A node was lost: scopes end without the weight that it held.
    pub(super) fn scopes_after_loss(&mut self, node: u32, now: u64) {
        for (index, nonce, scope) in self.scopes.iter_mut() {
            if !scope.lost.contains(&node) && scope.lost.len() < ScopeReport::MAX_LOST {
                scope.lost.push(node);
            }
            self.timers
                .insert((now.saturating_add(STUCK), Timer::Scope(index, nonce)));
        }
    }

    /// A scope that lost a node may wait for weight that never returns.
    pub(super) fn scope_is_stuck(&mut self, index: u32, nonce: u64, now: u64) {
        let Some(scope) = self.scopes.get_mut(index, nonce) else {
            return;
        };
        let at = scope.progress_at.saturating_add(STUCK);
        // While its source sends, it waits for the request to finish it.
        if scope.outstanding == 0 || matches!(scope.root, Root::Source { finish: None, .. }) {
            return;
        }
        if at > now {
            self.timers.insert((at, Timer::Scope(index, nonce)));
            return;
        }
        for node in std::mem::take(&mut scope.lost) {
            scope.report.lose(node);
        }
        if let Some((parent, weight, report)) = self.scope_ended(index, nonce) {
            self.return_weight(parent, weight, &report, now);
        }
    }

    /// A `Weights` frame arrived.
    pub(super) fn weights_returned(&mut self, body: &[u8], now: u64) -> Result<(), MalformedFrame> {
        const MALFORMED: MalformedFrame = MalformedFrame("malformed weights");
        let mut rest = body;
        while !rest.is_empty() {
            let (head, after) = ReturnHead::read_from_prefix(rest).map_err(|_| MALFORMED)?;
            let (report, after) = after.split_at_checked(head.len.get() as usize).ok_or(MALFORMED)?;
            let report = ScopeReport::parse(report).ok_or(MALFORMED)?;
            let scope = SlotRef::new(self.me(), head.scope.get(), head.nonce.get());
            self.weight_returned(scope, head.weight.get(), &report, now);
            rest = after;
        }
        Ok(())
    }

    /// Marks the nodes to which weights are sent now.
    pub(super) fn send_returns(&mut self, now: u64, is_idle: bool) {
        debug_assert!(
            self.owes_what_is_gathered(),
            "`owed` names the scopes to which weight is owed"
        );
        // Many returns to a scope are sent without being due.
        let is_paid = |scope| {
            let returns = self.returns.get(scope);
            is_idle && returns.is_some_and(|returns| returns.work >= WORK)
        };
        let gathered = self.owed.iter();
        let due: Vec<u32> = gathered
            .take_while(|(at, _)| is_idle || *at <= now)
            .filter(|(at, scope)| *at <= now || is_paid(scope))
            .map(|(_, scope)| scope.node.get())
            .collect();
        due.into_iter().for_each(|node| self.returns_are_due(node));
    }

    /// Whether [`owed`](Node::owed) agrees with the returns.
    pub(super) fn owes_what_is_gathered(&self) -> bool {
        let gathered = self.returns.iter().filter(|(_, returns)| returns.is_owed());
        let owed: std::collections::BTreeSet<_> = gathered
            .map(|(scope, returns)| (returns.due_at(), *scope))
            .collect();
        owed == self.owed
    }

    fn returns_are_due(&mut self, node: u32) {
        if let Some(member) = self.members.get_mut(node) {
            member.are_returns_due = true;
            self.ask_for_link(node);
        }
    }

    /// The next frame with weights for a node: its header, its body, and the scopes in it.
    pub(super) fn weights_for(&self, node: u32) -> Option<(Header, Vec<u8>, Vec<SlotRef>)> {
        let (mut body, mut scopes) = (Vec::new(), Vec::new());
        let owed = self.returns.iter();
        for (scope, returns) in owed.filter(|(scope, returns)| scope.node == node && returns.is_owed()) {
            if body.len() >= FULL_FRAME {
                break;
            }
            let mut report = Vec::new();
            returns
                .report
                .encode_to(&mut report, FULL_FRAME - ReturnHead::SIZE);
            let head = ReturnHead {
                scope: scope.slot,
                len: U32::new(report.len() as u32),
                nonce: scope.nonce,
                weight: U64::new(returns.weight),
            };
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(&report);
            scopes.push(*scope);
        }
        let header = Header::new(Kind::Weights, 0, 0);
        (!scopes.is_empty()).then_some((header, body, scopes))
    }

    /// The weights of these scopes were sent.
    pub(super) fn weights_sent(&mut self, scopes: &[SlotRef]) {
        self.traffic.weights += 1;
        for scope in scopes {
            if let Some(returns) = self.returns.get_mut(scope) {
                self.owed.remove(&(returns.due_at(), *scope));
                returns.take();
                if let Some(member) = self.members.get_mut(scope.node.get()) {
                    member.owed -= 1;
                }
            }
        }
    }
}
