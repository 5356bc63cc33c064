//! The text of a user's file: what FORMAT.md says of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lease::HostLease;
use crate::model::{Generation, HostKey, Timestamp};
use crate::sys::ProcessKey;

/// The present form.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Form<T> {
    format: u32,
    /// The file's own name: a former file that was given another name is not taken for the present one.
    file: String,
    leases: Vec<T>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    key: String,
    holder: String,
    generation: i64,
    boot: i64,
    expires_boot_ms: i64,
    expires_ns: i64,
    pid: u32,
    start_ticks: u64,
}

impl Record {
    fn of(lease: &HostLease) -> Self {
        Self {
            key: lease.key.to_string(),
            holder: lease.holder.to_string(),
            generation: lease.generation.0,
            boot: lease.boot,
            expires_boot_ms: lease.expires_boot_ms,
            expires_ns: lease.expires.0,
            pid: lease.taken_by.pid,
            start_ticks: lease.taken_by.start_ticks,
        }
    }

    fn lease(self, uid: u32) -> Option<HostLease> {
        Some(HostLease {
            key: self.key.parse().ok()?,
            holder: self.holder.parse().ok()?,
            uid,
            generation: Generation(self.generation),
            boot: self.boot,
            expires_boot_ms: self.expires_boot_ms,
            expires: Timestamp(self.expires_ns),
            taken_by: ProcessKey { pid: self.pid, start_ticks: self.start_ticks },
        })
    }
}

/// What a file says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Contents {
    /// The records that can be read.
    pub(super) leases: Vec<HostLease>,
    /// The keys of those of which nothing else can.
    pub(super) unclear: Vec<HostKey>,
    /// How many have not even a key.
    pub(super) faults: usize,
}

pub(super) fn encode(name: &str, leases: &[HostLease]) -> Vec<u8> {
    let records: Vec<Record> = leases.iter().map(Record::of).collect();
    let form = Form { format: FORMAT, file: name.to_owned(), leases: records };
    serde_json::to_vec(&form).expect("BUG: texts and numbers are JSON")
}

/// Reads a file of a user's; none if it was written under another name. A text says what is wrong with it as a whole.
pub(super) fn decode(bytes: &[u8], name: &str, uid: u32) -> Result<Option<Contents>, String> {
    let form: Form<Value> = serde_json::from_slice(bytes).map_err(|error| format!("damaged: {error}"))?;
    if form.file != name {
        return Ok(None);
    }
    let mut contents = Contents::default();
    for value in form.leases {
        let key = value.get("key").and_then(Value::as_str).and_then(|text| text.parse().ok());
        let record = serde_json::from_value::<Record>(value).ok().filter(|_| form.format == FORMAT);
        match (record.and_then(|record| record.lease(uid)), key) {
            (Some(lease), _) => contents.leases.push(lease),
            (None, Some(key)) => contents.unclear.push(key),
            (None, None) => contents.faults += 1,
        }
    }
    Ok(Some(contents))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(key: &str) -> HostLease {
        HostLease {
            key: key.parse().unwrap(),
            holder: "ada@\"desk\"".parse().unwrap(),
            uid: 7,
            generation: Generation(i64::MAX),
            boot: 3,
            expires_boot_ms: -5,
            expires: Timestamp(1_796_000_000_000_000_001),
            taken_by: ProcessKey { pid: 9, start_ticks: u64::MAX },
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let leases = vec![lease("host:port:3000"), lease("host:é\\\"")];
        let bytes = encode("7.json", &leases);
        assert_eq!(decode(&bytes, "7.json", 7), Ok(Some(Contents { leases, ..Contents::default() })));
        assert_eq!(decode(&bytes, "7.ab.json", 7), Ok(None));
    }

    /// What can't be read must hide as little as it can: a key where there is one.
    #[test]
    fn records_that_cannot_be_read_block_their_key_alone() {
        let good = String::from_utf8(encode("7.json", &[lease("host:a")])).unwrap();
        let keys = |text: &str| {
            let contents = decode(text.as_bytes(), "7.json", 7).unwrap().unwrap();
            let unclear: Vec<String> = contents.unclear.iter().map(ToString::to_string).collect();
            (contents.leases.len(), unclear, contents.faults)
        };
        assert_eq!(keys(&good), (1, vec![], 0));
        assert_eq!(keys(&good.replace("\"format\":1", "\"format\":2")), (0, vec!["host:a".into()], 0));
        let odd = r#""leases":[{"key":"host:b"},{"key":"host:c","holder":""},{"key":"thread:1"},7,"#;
        let odd = good.replace("\"leases\":[", odd);
        assert_eq!(keys(&odd), (1, vec!["host:b".into(), "host:c".into()], 2));
        for text in ["", "{}", "[]", "\0", &good[1..], &format!("{good}{good}"), &"[".repeat(1 << 20)] {
            assert!(decode(text.as_bytes(), "7.json", 7).unwrap_err().starts_with("damaged: "));
        }
    }
}
