//! The text of the metrics is what Prometheus reads.

use std::collections::{HashMap, HashSet};

use ifuncd_tests_ifuncs::{d_put, d_sum};

use super::running::{Daemon, OWN, handle};

/// A name and labels, as the text has them: each line is checked by the rules of the format.
fn parse(text: &str) -> HashMap<String, f64> {
    let (mut kinds, mut samples, mut family) = (HashMap::new(), HashMap::new(), HashSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "summary"].contains(&kind), "{line}");
            assert!(
                kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                "two families `{name}`"
            );
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (key, value) = line.rsplit_once(' ').unwrap();
        let name = key.split('{').next().unwrap();
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
        let of = name
            .strip_suffix("_sum")
            .or(name.strip_suffix("_count"))
            .filter(|of| kinds.contains_key(*of))
            .unwrap_or(name);
        let kind = kinds.get(of).unwrap_or_else(|| panic!("no family of `{line}`"));
        assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        if let Some(labels) = key.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            let labels = labels
                .strip_prefix('{')
                .and_then(|labels| labels.strip_suffix('}'))
                .unwrap();
            assert!(labels.split("\",").all(|label| label.contains("=\"")), "{line}");
        }
        family.insert(of.to_owned());
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(samples.insert(key.to_owned(), value).is_none(), "twice: {line}");
    }
    samples
}

#[test]
fn what_ifuncs_do_is_counted() {
    let daemon = Daemon::start("process", OWN);
    parse(&daemon.get("/metrics"));
    assert_eq!(daemon.get("/health"), "ok\n");
    let source = daemon.connect();
    let put = handle::<d_put>(&source, "d_put");
    for _ in 0..7 {
        put.call(&(b"k".as_slice(), b"value".as_slice()))
            .unwrap()
            .wait()
            .unwrap();
    }
    handle::<d_sum>(&source, "d_sum")
        .call(&[1])
        .unwrap()
        .wait()
        .unwrap();
    let samples = parse(&daemon.get("/metrics"));
    let address = &daemon.address;
    let sample = |key: &str| samples.get(key).copied().unwrap_or_else(|| panic!("no `{key}`"));
    assert_eq!(
        sample(&format!("ifunc_executed_total{{address=\"{address}\"}}")),
        8.0
    );
    assert_eq!(
        sample(&format!("ifunc_connections{{address=\"{address}\"}}")),
        1.0
    );
    assert_eq!(
        sample("ifuncd_calls_total{peer=\"own\",capability=\"store\"}"),
        7.0
    );
    assert_eq!(sample("ifuncd_moved_bytes_total{peer=\"own\"}"), 35.0);
    assert_eq!(sample("ifuncd_store_bytes{peer=\"own\"}"), 6.0);
    assert_eq!(sample("ifuncd_images_total{peer=\"own\"}"), 2.0);
    assert_eq!(sample(&format!("ifunc_runners{{address=\"{address}\"}}")), 1.0);
    let hits: f64 = samples
        .iter()
        .filter(|(key, _)| key.starts_with("ifunc_hits_total") && key.contains("d_put"))
        .map(|(_, hits)| hits)
        .sum();
    assert_eq!(hits, 7.0);
}
