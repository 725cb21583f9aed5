//! The cells of the matrix, by name: `shm/target/kill/mid-frame`.

use std::fmt;

macro_rules! names {
    ($(#[$doc:meta])* $kind:ident { $($(#[$of:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind {
            $($(#[$of])* $variant,)*
        }

        impl $kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in a cell's.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

names! {
    /// What carries the connection.
    Transport {
        /// Shared memory.
        Shm = "shm",
        /// TLS.
        Tls = "tls",
        /// UCX's active messages.
        Ucx = "ucx",
        /// UCX's puts.
        UcxPut = "ucx-put",
    }
}

names! {
    /// One of the two.
    Side {
        /// Who sends.
        Source = "source",
        /// Who runs.
        Target = "target",
    }
}

names! {
    /// What happens to the victim.
    Fault {
        /// SIGKILL.
        Kill = "kill",
        /// SIGSTOP, and SIGCONT after a while.
        Stop = "stop",
        /// SIGKILL, and another process in its place.
        Restart = "restart",
    }
}

names! {
    /// What the connection is doing.
    Moment {
        /// Nothing: the target sleeps.
        Idle = "idle",
        /// A frame is partly written or partly sent.
        MidFrame = "mid-frame",
        /// An image was sent, and is not installed.
        Code = "code-in-flight",
        /// The source has no room to send.
        Credit = "waiting-for-credit",
        /// The target runs what the source waits for.
        Answer = "waiting-for-answer",
    }
}

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What carries the connection.
    pub transport: Transport,
    /// Whom it happens to.
    pub victim: Side,
    /// What happens.
    pub fault: Fault,
    /// When it happens.
    pub moment: Moment,
}

impl Cell {
    /// The whole matrix.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for &transport in Transport::ALL {
            for &victim in Side::ALL {
                for &fault in Fault::ALL {
                    for &moment in Moment::ALL {
                        all.push(Self {
                            transport,
                            victim,
                            fault,
                            moment,
                        });
                    }
                }
            }
        }
        all
    }

    /// Whether the name begins as `pattern` does, part by part; `*` stands for any part.
    pub fn matches(&self, pattern: &str) -> bool {
        let parts = [
            self.transport.name(),
            self.victim.name(),
            self.fault.name(),
            self.moment.name(),
        ];
        matches(&parts, pattern)
    }
}

/// Whether a name of these parts begins as `pattern` does.
pub(super) fn matches(parts: &[&str], pattern: &str) -> bool {
    let mut asked = pattern.split('/');
    let matched = parts
        .iter()
        .all(|part| asked.next().is_none_or(|asked| asked == "*" || asked == *part));
    matched && asked.next().is_none()
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            transport,
            victim,
            fault,
            moment,
        } = self;
        let (transport, victim) = (transport.name(), victim.name());
        f.pad(&format!(
            "{transport}/{victim}/{}/{}",
            fault.name(),
            moment.name()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Cell;

    #[test]
    fn patterns_choose_cells() {
        let all = Cell::all();
        let count = |pattern: &str| all.iter().filter(|cell| cell.matches(pattern)).count();
        assert_eq!(all.len(), 120);
        assert_eq!(count("shm"), 30);
        assert_eq!(count("*/target/kill"), 20);
        assert_eq!(count("shm/target/kill/mid-frame"), 1);
        assert_eq!(count("shm/target/kill/mid-frame/x"), 0);
        assert_eq!(count("sh"), 0);
    }
}
