//! What each way to a result has cost: a table for people, an array of JSON objects for programs.

use std::fmt::Write as _;

use example_servers::{Bytes, Moved};

/// The graph, and how it was computed.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Number of servers.
    pub servers: u32,
    /// Number of vertices.
    pub vertices: u32,
    /// Number of edges; in an undirected graph, each has two directions.
    pub edges: usize,
    /// Edges that lead to another server.
    pub cut_edges: u64,
}

/// What one way to a result has cost.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// `bfs` or `pagerank`.
    pub algorithm: &'static str,
    /// `ifunc`: where the graph is; `fetch`: where the source is, which fetches the graph.
    pub mode: &'static str,
    /// What went to and between the servers, and back.
    pub moved: Moved,
    /// How long it took.
    pub seconds: f64,
    /// How many messages there would be with one for each edge to another server.
    pub one_per_edge: Option<u64>,
}

impl Cost {
    /// Subtracts the answers that so many invocations did not have: [`Moved`] counts one for each. `one_per_edge`: how many messages
    /// there would have been with one for each edge to another server.
    pub fn without_answers(&mut self, invocations: u64, one_per_edge: u64) {
        self.moved.messages -= invocations;
        self.one_per_edge = Some(one_per_edge);
    }

    /// The cost of an algorithm on the graph whose fetching cost this.
    #[must_use]
    pub fn followed_by(self, algorithm: &'static str, seconds: f64) -> Self {
        Self {
            algorithm,
            mode: "fetch",
            seconds: self.seconds + seconds,
            ..self
        }
    }
}

/// The table.
#[must_use]
pub fn table(costs: &[Cost]) -> String {
    let mut text = format!(
        "{:<17} {:>9} {:>12} {:>10} {:>11}",
        "", "messages", "one per edge", "bytes", "time"
    );
    for cost in costs {
        let name = format!("{} by {}", cost.algorithm, cost.mode);
        let Moved { messages, bytes } = cost.moved;
        let one_per_edge = cost.one_per_edge.map(|count| count.to_string());
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n{name:<17} {messages:>9} {:>12} {:>10} {:>8.1} ms",
            one_per_edge.unwrap_or_default(),
            Bytes(bytes),
            cost.seconds * 1e3
        );
    }
    text
}

/// The same as JSON.
#[must_use]
pub fn json(run: Run, costs: &[Cost]) -> String {
    let Run {
        servers,
        vertices,
        edges,
        cut_edges,
    } = run;
    let object = |cost: &Cost| {
        let Cost {
            algorithm,
            mode,
            moved: Moved { messages, bytes },
            seconds,
            one_per_edge,
        } = cost;
        let one_per_edge = one_per_edge.map_or("null".into(), |count| count.to_string());
        format!(
            "  {{\"algorithm\": \"{algorithm}\", \"mode\": \"{mode}\", \"servers\": {servers}, \"vertices\": {vertices}, \
             \"edges\": {edges}, \"cut_edges\": {cut_edges}, \"messages\": {messages}, \"one_per_edge\": {one_per_edge}, \
             \"bytes\": {bytes}, \"seconds\": {seconds:.6}, \"checked\": true}}"
        )
    };
    let objects: Vec<String> = costs.iter().map(object).collect();
    format!("[\n{}\n]\n", objects.join(",\n"))
}
