//! The goals, and whether a row meets its goal. A missed goal is printed, it is not an error.

use super::format;
use crate::figures::kv;
use crate::row::Row;

/// Above this message rate of UCX, which it reaches on some processors between near cores, another goal
/// applies.
const FAST_PEER: f64 = 30e6;

/// The goal of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// Ours divided by the peer's (or by the floor, without a peer) is at most this.
    AtMost(f64),
    /// The same, or ours exceeds the floor by at most this many nanoseconds.
    NearPeerOrFloor(f64, f64),
    /// Ours divided by the peer's is at least this.
    AtLeast(f64),
    /// Ours exceeds the peer's by at most this many nanoseconds.
    NoMoreThan(f64),
}

/// The result of comparing a row with its goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) goal: Goal,
    /// The compared value: a ratio, or a difference in nanoseconds.
    pub(crate) value: f64,
    /// The limit of the value.
    pub(crate) limit: f64,
}

/// The goal of a row; `None`: the row is only reported.
pub(crate) fn of(row: &Row) -> Option<Goal> {
    // Rows with static payloads, with unhashed code or with code that is compiled first are only reported.
    if row.case.contains("static") || (row.figure == "first-arrival" && row.case != "hashed") {
        return None;
    }
    let fast = row.peer.is_some_and(|peer| peer > FAST_PEER);
    match row.figure.as_str() {
        "lat-floor" => Some(Goal::AtMost(1.1)),
        "lat-am" if row.size <= 16 << 10 => Some(Goal::NearPeerOrFloor(0.75, 20.0)),
        "lat-am" => Some(Goal::AtMost(0.7)),
        "rate-am" if row.size <= 64 => Some(Goal::AtLeast(if fast { 1.5 } else { 10.0 })),
        "rate-am" => Some(Goal::AtLeast(if fast { 1.0 } else { 1.8 })),
        "lat-ucx" => Some(Goal::AtMost(1.05)),
        "rate-ucx" => Some(Goal::AtLeast(0.95)),
        "lat-ucx-sm" => Some(Goal::NoMoreThan(40.0)),
        "code-every-frame" if row.unit == "ns" => Some(Goal::AtMost(1.0)),
        "code-every-frame" => Some(Goal::AtLeast(1.0)),
        "drop-in" if row.size <= 16 << 10 => Some(Goal::AtMost(1.0)),
        "c-interface" => Some(Goal::AtMost(1.05)),
        // Only hashed native code is comparable.
        "first-arrival" if row.case != "hashed" => None,
        "first-arrival" if row.size <= 512 => Some(Goal::AtMost(0.1)),
        "first-arrival" if row.size <= 8 << 10 => Some(Goal::AtMost(1.0 / 6.0)),
        "host-call" => Some(Goal::AtMost(1.5)),
        "scale" => Some(Goal::AtMost(1.5)),
        "kv" => of_kv(row.peer_name.as_deref()?, &row.case),
        "calls" => of_calls(row.peer_name.as_deref()?, &row.case),
        // The peer that is not named in the case aggregates by hand.
        "gups" | "gather" if row.case.ends_with(", aggregated") => Some(Goal::AtLeast(0.5)),
        // Over shared memory, a single message costs too little for a goal.
        "aggregate" if row.case.contains("TCP") => Some(Goal::AtLeast(20.0)),
        _ => None,
    }
}

/// The goal beside a peer of the key-value server.
fn of_kv(peer: &str, case: &str) -> Option<Goal> {
    if peer.starts_with(kv::COMPILED_IN) {
        return Some(Goal::AtLeast(0.9));
    }
    let is_remote = peer.starts_with(kv::GRPC) || peer.starts_with(kv::REDIS);
    (is_remote && case.contains(", 1 client,")).then_some(Goal::AtLeast(10.0))
}

/// The goal beside UCX of calls with several in flight: over TCP, those that are ready together can share messages.
fn of_calls(peer: &str, case: &str) -> Option<Goal> {
    let (carrier, in_flight) = case.strip_suffix(" in flight")?.rsplit_once(", ")?;
    let in_flight: u32 = in_flight.parse().ok()?;
    let shares_messages = carrier.contains("TCP") && in_flight >= 16;
    let goal = Goal::AtLeast(if shares_messages { 2.0 } else { 1.0 });
    (peer.starts_with("UCX") && in_flight > 1).then_some(goal)
}

/// Compares a row with its goal; `None` without a goal or a value to compare with.
pub(crate) fn verdict(row: &Row) -> Option<Verdict> {
    let goal = of(row)?;
    let ratio = row.ratio.or_else(|| Some(row.ours / row.floor?));
    let (value, limit) = match goal {
        Goal::AtMost(limit) | Goal::AtLeast(limit) => (ratio?, limit),
        Goal::NearPeerOrFloor(limit, above) => {
            let allowed = row
                .floor
                .zip(row.peer)
                .map(|(floor, peer)| (floor + above) / peer);
            (ratio?, limit.max(allowed.unwrap_or(limit)))
        }
        Goal::NoMoreThan(limit) => (row.ours - row.peer?, limit),
    };
    Some(Verdict { goal, value, limit })
}

impl Goal {
    /// `≤ 0.75`
    pub(crate) fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {}", simple(limit)),
            Self::NearPeerOrFloor(limit, above) => {
                format!("≤ {} or floor + {above} ns", simple(limit))
            }
            Self::AtLeast(limit) => format!("≥ {}", simple(limit)),
            Self::NoMoreThan(limit) => format!("≤ {limit} ns more"),
        }
    }
}

impl Verdict {
    pub(crate) fn is_met(self) -> bool {
        self.excess() <= 0.0
    }

    /// The share of the limit by which the goal is missed (nanoseconds for a difference); negative if it is
    /// met.
    pub(crate) fn excess(self) -> f64 {
        match self.goal {
            Goal::AtMost(_) | Goal::NearPeerOrFloor(..) => self.value / self.limit - 1.0,
            Goal::AtLeast(_) => 1.0 - self.value / self.limit,
            Goal::NoMoreThan(_) => self.value - self.limit,
        }
    }

    /// `met`, or `missed by 4 %`.
    pub(crate) fn text(self) -> String {
        match (self.is_met(), self.goal) {
            (true, _) => "met".into(),
            (false, Goal::NoMoreThan(_)) => format!("missed by {}", format::value(self.excess(), "ns")),
            (false, _) => format!("missed by {} %", percent(self.excess() * 100.0)),
        }
    }

    /// The compared value as text.
    pub(crate) fn value_text(self) -> String {
        match self.goal {
            Goal::NoMoreThan(_) => format::value(self.value, "ns"),
            _ => format::ratio(self.value),
        }
    }
}

/// A limit as text: `0.75`, `20`, `1/6`.
fn simple(limit: f64) -> String {
    let inverse = 1.0 / limit;
    if limit < 0.5 && (inverse - inverse.round()).abs() < 1e-9 {
        format!("1/{inverse:.0}")
    } else {
        limit.to_string()
    }
}

/// Whole percents, or tenths below one percent.
fn percent(percent: f64) -> String {
    if percent < 0.95 {
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figure: &str, size: u64, ours: f64, peer: f64) -> Row {
        Row {
            figure: figure.into(),
            size,
            ours,
            peer: Some(peer),
            ratio: Some(ours / peer),
            unit: "ns".into(),
            ..Row::default()
        }
    }

    fn text(row: &Row) -> String {
        verdict(row).map_or_else(|| "no goal".into(), Verdict::text)
    }

    #[test]
    fn latencies_have_upper_and_rates_lower_limits() {
        assert_eq!(text(&row("lat-am", 64, 70.0, 100.0)), "met");
        assert_eq!(text(&row("lat-am", 64, 78.0, 100.0)), "missed by 4 %");
        assert_eq!(text(&row("lat-am", 1 << 20, 75.0, 100.0)), "missed by 7 %");
        assert_eq!(text(&row("rate-am", 8, 20e6, 2e6)), "met");
        assert_eq!(text(&row("rate-am", 8, 9e6, 1e6)), "missed by 10 %");
        assert_eq!(text(&row("rate-am", 8, 60e6, 40e6)), "met");
        assert_eq!(text(&row("rate-am", 4096, 5e6, 2e6)), "met");
        assert_eq!(text(&row("lat-ucx-sm", 8, 300.0, 250.0)), "missed by 10.0 ns");
        assert_eq!(text(&row("trust", 8, 300.0, 250.0)), "no goal");
        let calls = |peer: &str, case: &str| {
            let row = Row {
                peer_name: Some(peer.into()),
                case: case.into(),
                ..row("calls", 8, 1.5e6, 1e6)
            };
            text(&row)
        };
        for (case, expected) in [
            ("shm, 64 in flight", "met"),
            ("ucx over TCP, 1 in flight", "no goal"),
            ("ucx over TCP, 4 in flight", "met"),
            ("ucx over TCP, 16 in flight", "missed by 25 %"),
        ] {
            assert_eq!(calls("UCX active messages, defaults", case), expected, "{case}");
        }
        assert_eq!(calls("tonic over TCP", "ucx over TCP, 16 in flight"), "no goal");
        let goals = [
            (200, "hashed"),
            (4096, "hashed"),
            (64 << 10, "hashed"),
            (200, "not hashed"),
        ];
        let goals = goals.map(|(size, case)| {
            let case = case.to_owned();
            let row = Row {
                case,
                ..row("first-arrival", size, 1.0, 9.0)
            };
            of(&row).map_or_else(|| "none".into(), Goal::text)
        });
        assert_eq!(goals, ["≤ 1/10", "≤ 1/6", "none", "none"]);
    }

    #[test]
    fn what_is_aggregated_is_compared_with_what_is_aggregated_by_hand() {
        let of = |case: &str| {
            text(&Row {
                case: case.into(),
                ..row("gups", 8, 4.0, 10.0)
            })
        };
        assert_eq!(of("shm, aggregated"), "missed by 20 %");
        assert_eq!(of("shm, aggregated; beside atomics"), "no goal");
        assert_eq!(of("shm, each in its own message"), "no goal");
    }

    #[test]
    fn a_key_value_server_is_compared_with_each_peer() {
        let of = |peer: &str, clients: &str| {
            text(&Row {
                case: format!("shm, {clients}, get"),
                peer_name: Some(peer.into()),
                ..row("kv", 64, 9.5, 1.0)
            })
        };
        assert_eq!(
            of("UCX active messages, compiled in, defaults", "8 clients"),
            "met"
        );
        assert_eq!(of("tonic (gRPC), compiled in", "1 client"), "missed by 5 %");
        assert_eq!(of("Redis, Lua", "1 client"), "missed by 5 %");
        assert_eq!(of("Redis, Lua", "8 clients"), "no goal");
        assert_eq!(
            of("wasmtime behind UCX active messages, defaults", "1 client"),
            "no goal"
        );
    }

    #[test]
    fn a_latency_near_the_floor_is_enough() {
        let mut near = row("lat-am", 8, 95.0, 100.0);
        assert!(!verdict(&near).unwrap().is_met());
        near.floor = Some(80.0);
        assert!(verdict(&near).unwrap().is_met());
        // NoMoreThan 16 KiB it is not.
        near.size = 32 << 10;
        assert!(!verdict(&near).unwrap().is_met());
    }

    #[test]
    fn without_a_peer_the_floor_is_the_peer() {
        let mut alone = row("lat-floor", 8, 150.0, 1.0);
        (alone.peer, alone.ratio, alone.floor) = (None, None, Some(140.0));
        assert_eq!(text(&alone), "met");
        alone.case = "static".into();
        assert_eq!(text(&alone), "no goal");
    }
}
