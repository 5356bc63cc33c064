use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{Method, StatusCode};
use parking_lot::Mutex;

/// What the server has done since it started.
#[derive(Default)]
pub(super) struct Metrics {
    /// Blobs that were stored, those that were there already included.
    pub(super) puts: AtomicU64,
    /// Blobs that were opened for a reader.
    pub(super) gets: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    /// Held only to count, and to copy.
    answers: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

impl Metrics {
    pub(super) fn answered(&self, method: &Method, status: StatusCode) {
        let key = (name_of(method), status.as_u16());
        *self.answers.lock().entry(key).or_default() += 1;
    }

    /// The figures in Prometheus's text format, version 0.0.4.
    pub(super) fn text(&self, in_progress: usize, connections: usize) -> String {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, u64)]| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let one = |value: u64| [(String::new(), value)];
        family("flows_artifact_puts", "counter", "Blobs stored.", &one(load(&self.puts)));
        family("flows_artifact_gets", "counter", "Blobs read.", &one(load(&self.gets)));
        // A server keeps its blobs itself: there is no tier behind it whose requests could fail.
        let behind = ["", "{operation=\"put\"}", "{operation=\"write_back\"}"];
        family(
            "flows_artifact_remote_failures",
            "counter",
            "Failures of a shared tier behind this store; a server has none.",
            &behind.map(|labels| (labels.to_owned(), 0)),
        );
        let answers = self.answers.lock().clone();
        let label = |(method, status)| format!("{{method=\"{method}\",status=\"{status}\"}}");
        let samples: Vec<_> = answers.into_iter().map(|(key, count)| (label(key), count)).collect();
        family("leasehold_http_requests_total", "counter", "Requests answered.", &samples);
        family(
            "leasehold_http_requests_in_progress",
            "gauge",
            "Requests admitted.",
            &one(in_progress as u64),
        );
        family("leasehold_http_connections", "gauge", "Open connections.", &one(connections as u64));
        family(
            "leasehold_http_received_bytes_total",
            "counter",
            "Bytes of uploaded bodies.",
            &one(load(&self.received_bytes)),
        );
        family(
            "leasehold_http_sent_bytes_total",
            "counter",
            "Bytes of blobs given to connections.",
            &one(load(&self.sent_bytes)),
        );
        text
    }
}

/// Methods that nobody answers are one, so that a stranger can't make new series.
fn name_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        _ => "other",
    }
}
