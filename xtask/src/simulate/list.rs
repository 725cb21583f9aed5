//! The seeded bugs: small changes of `ifunc-proto`, each of which breaks a promise.

/// One bug.
#[derive(Debug)]
pub(super) struct Mutant {
    /// What it breaks.
    pub(super) name: &'static str,
    /// The file, below `ifunc-proto/src`.
    pub(super) file: &'static str,
    /// Text that occurs in the file exactly once.
    pub(super) old: &'static str,
    /// What stands there instead.
    pub(super) new: &'static str,
}

const fn mutant(name: &'static str, file: &'static str, old: &'static str, new: &'static str) -> Mutant {
    Mutant { name, file, old, new }
}

/// All bugs.
pub(super) const MUTANTS: &[Mutant] = &[
    mutant(
        "one call too many is under way",
        "caller.rs",
        "self.calls.in_flight() < DUPLEX_CALLS",
        "self.calls.in_flight() <= DUPLEX_CALLS",
    ),
    mutant(
        "a new link counts as the old one",
        "caller.rs",
        "self.generation += 1;",
        "self.generation = 1;",
    ),
    mutant(
        "a call is sent at once beyond the bound of a link",
        "caller/handles.rs",
        "            !self.attention.is_none()\n",
        "            !self.attention.is_none_but_duplex()\n",
    ),
    mutant(
        "the last send is remembered beyond its link",
        "caller.rs",
        "self.calls.last_send.take()",
        "self.calls.last_send.get()",
    ),
    mutant(
        "a dropped call's token is free too early",
        "caller.rs",
        "let may_complete = self.is_served() && !is_resent || self.calls.is_in_batch(token);",
        "let may_complete = false;",
    ),
    mutant(
        "a large payload is accepted and returned",
        "caller.rs",
        "let _ = self.drive(tx);",
        "self.drive(tx)?;",
    ),
    mutant(
        "an invocation overtakes the open batch",
        "caller.rs",
        "        self.close_batch_soon();\n        let is_ready = self.drive(tx)? &&",
        "        let is_ready = self.drive(tx)? &&",
    ),
    mutant(
        "an image that is to be sent again counts as not installed",
        "caller/handles.rs",
        "self.installed & !Self::RESEND == generation",
        "self.installed == generation",
    ),
    mutant(
        "a handle is released while it has a user",
        "caller/handles.rs",
        ".all(|slot| slot.users == 0);",
        ".all(|slot| slot.users <= 1);",
    ),
    mutant(
        "an image is released while another of its entries has a user",
        "caller/handles.rs",
        "let is_unused = self.handles[span].iter().all(|slot| slot.users == 0);",
        "let is_unused = self.handles[handle as usize].users == 0;",
    ),
    mutant(
        "all entries of an image have its first handle",
        "caller/handles.rs",
        "let index = span.start + usize::from(entry);",
        "let index = span.start + usize::from(entry) * 0;",
    ),
    mutant(
        "another image of a handle counts as installed",
        "caller/handles.rs",
        "                installed: 0,\n            };\n",
        "                installed: self.generation,\n            };\n",
    ),
    mutant(
        "a handle that a call still names is bound again",
        "caller/handles.rs",
        "self.handles[index].users == 0 && !self.calls.has_retry_of(index as u32)",
        "self.handles[index].users == 0",
    ),
    mutant(
        "a report names the image that its handle has now",
        "caller/handles.rs",
        "until.is_none_or(|until| (sequence.wrapping_sub(until) as i32) < 0)",
        "until.is_none()",
    ),
    mutant(
        "the open batch is kept when its source gives up",
        "caller.rs",
        "self.fail_batch(|_| Some(Lost::NotSent { why: why.to_owned() }));",
        "",
    ),
    mutant(
        "every call is sent again",
        "caller.rs",
        "let retry = match self.handles[handle as usize].image.is_idempotent() {",
        "let retry = match true {",
    ),
    mutant(
        "a flush without a link ends before calls that are sent again",
        "caller.rs",
        "self.resend.is_empty() && !self.has_unsent()",
        "!self.has_unsent()",
    ),
    mutant(
        "a fragment repeats a byte",
        "caller/backlog.rs",
        "outgoing.sent += len;",
        "outgoing.sent += len - 1;",
    ),
    mutant(
        "a reassembled body is not marked",
        "caller/backlog.rs",
        "            FrameFlags::ASSEMBLED\n",
        "            FrameFlags::NONE\n",
    ),
    mutant(
        "a released handle counts as installed",
        "caller/backlog.rs",
        "self.handles[slot].installed = 0;",
        "let _ = slot;",
    ),
    mutant(
        "a payload above the limit is sent again",
        "caller/backlog.rs",
        "if payload.len() as u64 > self.limits.max_payload {",
        "if false {",
    ),
    mutant(
        "a batch goes over a link that lacks its images",
        "caller/aggregate.rs",
        "if self.batch.generation != self.generation {",
        "if false {",
    ),
    mutant(
        "a batch that is sent in parts loses the second one",
        "caller/aggregate.rs",
        "self.batch.remove(part);",
        "let whole = self.batch.first_part(usize::MAX);\n        self.batch.remove(whole);",
    ),
    mutant(
        "an entry that was sent counts as one of the open batch",
        "caller/aggregate.rs",
        "                calls.sent_in_batch(head.token.get(), head.count.get(), sequence);\n",
        "                (head.token.get()..).take(head.count.get() as usize).for_each(|token| calls.sent(token, sequence));\n",
    ),
    mutant(
        "an entry of a full batch is accepted and returned",
        "caller/aggregate.rs",
        "let _ = self.close_batch(tx);",
        "self.close_batch(tx)?;",
    ),
    mutant(
        "a call in the open batch ends with its link",
        "calls.rs",
        "            if slot.in_batch {\n",
        "            if false {\n",
    ),
    mutant(
        "calls are sent again in the order of their tokens",
        "calls.rs",
        "        retries.sort_unstable();\n",
        "        retries.sort_unstable_by_key(|&token| std::cmp::Reverse(token));\n",
    ),
    mutant(
        "a call that was never sent may have run",
        "calls.rs",
        "Lost::of_dead_link(sequence != 0, why)",
        "Lost::of_dead_link(true, why)",
    ),
    mutant(
        "a frame that arrives early is dropped",
        "connection/poll.rs",
        "                self.order.park(&frame).map_err(|_| TOO_FAR_AHEAD)?;\n",
        "",
    ),
    mutant(
        "the next but one frame passes for a duplicate",
        "order.rs",
        "ahead if ahead > 0 => Turn::Early",
        "ahead if ahead > 1 => Turn::Early",
    ),
    mutant(
        "a parked frame runs twice",
        "connection/poll.rs",
        "            order.take_parked();\n",
        "",
    ),
    mutant(
        "credits are not returned",
        "connection/poll.rs",
        "let settles = L::Rx::IN_ORDER || !self.order.has_parked();",
        "let settles = polled.processed > 64;",
    ),
    mutant(
        "parked frames give their credits back",
        "connection/poll.rs",
        "let settles = L::Rx::IN_ORDER || !self.order.has_parked();",
        "let settles = true;",
    ),
    mutant(
        "a batch that is not over counts as processed",
        "connection/poll.rs",
        "            if progress == Progress::Done {\n",
        "            if progress != Progress::Blocked {\n",
    ),
    mutant(
        "images outlive their link",
        "connection.rs",
        "        self.server = None;\n",
        "",
    ),
    mutant(
        "a request that once found the window closed stays stalled",
        "connection/poll.rs",
        "std::mem::take(&mut self.is_stalled)",
        "self.is_stalled",
    ),
    mutant(
        "the first completion of many is lost",
        "caller.rs",
        "            for index in 0..count {",
        "            for index in 1..count {",
    ),
    mutant(
        "an invocation runs again after its reply was blocked",
        "server.rs",
        "            // Before it runs: a frame never runs twice.\n            order.advance();\n",
        "            if frame.body.len() % 2 == 0 { order.advance(); }\n",
    ),
    mutant(
        "a batch repeats an entry",
        "server.rs",
        "run.started = before + started as u32;",
        "run.started = before + end.executed as u32;",
    ),
    mutant(
        "a run goes on after an entry that was not started",
        "server.rs",
        "run.started = before + started as u32;",
        "run.started = before + count as u32;",
    ),
    mutant(
        "a failed entry has the token of the first one",
        "server.rs",
        "first => first + end.executed as u64,",
        "first => first,",
    ),
    mutant(
        "a batch begins where the one before ended",
        "server.rs",
        "        self.batch = BatchPosition::default();\n",
        "",
    ),
    mutant(
        "an unbound handle keeps its image",
        "server/bindings.rs",
        "                *slot = Binding::Free;\n",
        "                let _ = slot;\n",
    ),
    mutant(
        "an answer that finds the window closed is lost",
        "replies.rs",
        "Ok(None) => return Ok(None),",
        "Ok(None) => return Ok(nowhere),",
    ),
    mutant(
        "gathered completions do not reach the outbox",
        "replies.rs",
        "            self.outbox.push_back(Owed::Frame(header, body.to_vec()));\n            self.gathered.sent();\n",
        "            let _ = (header, body);\n            self.gathered.sent();\n",
    ),
    mutant(
        "a reply in the outbox that finds the window closed is dropped",
        "replies.rs",
        "queue.push_front(Owed::Frame(header, body));",
        "let _ = body;",
    ),
    mutant(
        "a driver sleeps although its replies can be sent",
        "replies.rs",
        "matches!(tx.reserve(len, 8), Ok(None))",
        "!matches!(tx.reserve(len, 8), Ok(None))",
    ),
    mutant(
        "an entry's answer exceeds the limit",
        "replies.rs",
        "Some(&mut self.gathered.reserve()[..self.max_answer])",
        "Some(self.gathered.reserve())",
    ),
    mutant(
        "a report is lost when the window is closed",
        "replies.rs",
        "            self.report = Some((header, body));\n            self.spill();\n",
        "            self.spill();\n",
    ),
    mutant(
        "parts of a long answer are sent twice",
        "long.rs",
        "            *sent += len;\n",
        "            *sent += len / 2;\n",
    ),
    mutant(
        "a long answer is sent as if it were whole",
        "long.rs",
        "                let flags = if *sent > 0 {",
        "                let flags = if *sent > bytes.len() {",
    ),
    mutant(
        "other replies come between the parts of an answer",
        "replies.rs",
        "if self.sending.is_some() && !self.send_long(tx)? {",
        "if self.sending.is_some() && !self.send_long(tx)? && self.outbox.is_empty() {",
    ),
    mutant(
        "the parts of an answer count for the next one",
        "calls.rs",
        "is_none_or(|partly| !partly.is_of(token, len))",
        "is_none()",
    ),
    mutant(
        "a large completion is sent twice",
        "gathered.rs",
        "        if self.complete.pop_front().is_none() {",
        "        if self.complete.len() > 1 || self.complete.pop_front().is_none() {",
    ),
    mutant(
        "a poll goes on after an entry that was taken",
        "server.rs",
        "?;\n                if H::TAKES {\n                    quantum.exhaust();\n                }\n",
        "?;\n",
    ),
    mutant(
        "a poll goes on after a request that was taken",
        "server.rs",
        "frame.body.len());\n            if H::TAKES {\n                quantum.exhaust();\n            }\n",
        "frame.body.len());\n",
    ),
    mutant(
        "an invocation that was taken is answered at once, too",
        "server.rs",
        "            Self::Taken => Ok(None),",
        "            Self::Taken => Ok(Some(Box::new(Failed::new(ifunc_abi::status::Status::Executed, Vec::new())))),",
    ),
    mutant(
        "node: a message that was sent still counts in the outbox",
        "node/drive.rs",
        "                    self.bytes -= message.size();\n",
        "",
    ),
    mutant(
        "node: a stream's last answer waits for one more partial answer",
        "node/slots.rs",
        "*before <= next || slot.stream.is_none()",
        "*before < next || slot.stream.is_none()",
    ),
    mutant(
        "node: a partial answer that is next is dropped",
        "node/slots.rs",
        "index >= stream.next && index < stream.limit",
        "index > stream.next && index < stream.limit",
    ),
    mutant(
        "node: an invocation that waits for its window is forgotten",
        "node/slots.rs",
        "        stream.waiter = Some((from, waiter, next));\n",
        "",
    ),
    mutant(
        "node: a window opens by more than was granted",
        "node/slots.rs",
        "stream.limit.saturating_add(count)",
        "stream.limit.saturating_add(count + 3)",
    ),
    mutant(
        "node: two invocations wait under one number",
        "node/slots.rs",
        "        self.next_waiter += 1;\n",
        "",
    ),
    mutant(
        "node: a part of a scope's weight is lost",
        "node/scopes.rs",
        "weight - share * count",
        "weight - share * count - 1",
    ),
    mutant(
        "node: a scope ends while weight is out",
        "node/scopes.rs",
        "            if left > 0 {",
        "            if left > u128::from(weight) {",
    ),
    mutant(
        "node: weight that could not be divided is not returned",
        "node/scopes.rs",
        "Some((parent, weight, scope.report))",
        "Some((parent, 0, scope.report))",
    ),
    mutant(
        "node: a scope that lost a node waits for ever",
        "node/scopes.rs",
        "        if at > now {\n",
        "        if at > 0 {\n            return;\n",
    ),
    mutant(
        "node: weight returns twice",
        "node/scopes.rs",
        "std::mem::take(&mut self.weight)",
        "self.weight",
    ),
    mutant(
        "node: returned weight is never sent",
        "node/scopes.rs",
        "        returns.count += 1;\n",
        "",
    ),
    mutant(
        "node: a message for a lost node is dropped in silence",
        "node/members.rs",
        "        for message in queue {",
        "        for message in queue.into_iter().skip(1) {",
    ),
    mutant(
        "node: what it cannot answer runs",
        "node/visit.rs",
        "&& let Some(unknown) = self.unknown_to_reply(head)",
        "&& let Some(unknown) = self.unknown_to_reply(head).filter(|_| false)",
    ),
    mutant(
        "node: what bounces takes its weight along",
        "node/outbox.rs",
        "        self.end_unsent(head, from, status,",
        "        let head = &TravelHead { scope: SlotRef::NONE, ..*head };\n        self.end_unsent(head, from, status,",
    ),
    mutant(
        "node: another node waits for the outbox, too",
        "connection/poll.rs",
        "if self.node.is_none() && !host.admits_travel()",
        "if !host.admits_travel()",
    ),
    mutant(
        "node: sources are admitted whatever waits",
        "node/mod.rs",
        "self.bytes - self.waiting_bytes <= self.config.outbox_bytes / 2",
        "self.bytes - self.waiting_bytes <= self.config.outbox_bytes",
    ),
    mutant(
        "node: what is under way to another node is not counted",
        "node/visit.rs",
        "        self.bytes += size;\n",
        "        self.bytes += size - payload;\n",
    ),
    mutant(
        "node: weights return whenever a poll finds nothing",
        "node/scopes.rs",
        "is_idle && returns.is_some_and(|returns| returns.work >= WORK)",
        "is_idle && returns.is_some()",
    ),
    mutant(
        "node: each weight returns in a frame of its own",
        "node/scopes.rs",
        "const MANY: u32 = 1000;",
        "const MANY: u32 = 1;",
    ),
    mutant(
        "node: an answer to a source that is a target, too, overtakes a partial one",
        "replies.rs",
        "        if self.owes || !self.send(tx, header, &body)? {\n            self.late",
        "        if self.owes && !self.is_duplex || !self.send(tx, header, &body)? {\n            self.late",
    ),
    mutant(
        "node: a poll goes on after an invocation that travels and was taken",
        "server/travel.rs",
        "        if H::TAKES {\n            quantum.exhaust();\n        }\n",
        "",
    ),
    mutant(
        "node: an invocation that travels and was taken is answered at once, too",
        "server/travel.rs",
        "        let Some(len) = images.travel(host, header, frame, answer)? else {\n            return Ok(Progress::Done);\n        };\n",
        "        let len = images.travel(host, header, frame, answer)?.unwrap_or(0);\n",
    ),
    mutant(
        "node: what was forwarded and answered leaves, too",
        "node/visit.rs",
        "if outcome.is_err()\n            && let Some(dropped)",
        "if outcome.is_err()\n            && forwarded.is_none()\n            && let Some(dropped)",
    ),
    mutant(
        "node: a call that was dropped keeps its slot",
        "node/slots.rs",
        "pub fn cancel(&mut self, connection: u64, token: u64) {\n",
        "pub fn cancel(&mut self, connection: u64, token: u64) {\n        if token != 0 {\n            return;\n        }\n",
    ),
    mutant(
        "node: a call that was dropped while it ran gets a slot",
        "node/visit.rs",
        "if self.cancelled.contains(&(connection, token)) {",
        "if self.cancelled.contains(&(connection, 0)) {",
    ),
    mutant(
        "node: a call that was dropped never ends",
        "node/slots.rs",
        "        if let Some(slot) = self.close_slot(index, nonce) {\n            let failed = Failed {\n                status: Status::Failed(Failure::Cancelled),",
        "        if let Some(slot) = self.close_slot(index, nonce).filter(|_| false) {\n            let failed = Failed {\n                status: Status::Failed(Failure::Cancelled),",
    ),
];

#[cfg(test)]
mod tests {
    use super::MUTANTS;

    #[test]
    fn each_changes_text_that_occurs_once() {
        for mutant in MUTANTS {
            let path = crate::root().join("ifunc-proto/src").join(mutant.file);
            let text = std::fs::read_to_string(path).unwrap();
            let count = text.matches(mutant.old).count();
            assert_eq!(
                count, 1,
                "`{}`: {} has the text {count} times",
                mutant.name, mutant.file
            );
        }
    }
}
