use super::{EngineError, Result, Workspace};
use crate::catalog::Event;
use crate::model::{ArtifactPath, CheckoutId, Holder, ResourceKey, Seq};

/// An event, with the names of what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedEvent {
    /// The event.
    pub event: Event,
    /// The key of the resource, where it is about one.
    pub key: Option<ResourceKey>,
    /// Where the artifact is now: in the head tree, or in the checkout of the event's holder.
    pub path: Option<ArtifactPath>,
    /// Whether it is on what may not be seen: then nothing but its number is told.
    pub hidden: bool,
}

impl NamedEvent {
    fn of_hidden(event: Event) -> Self {
        let Event { seq, at, .. } = event;
        let (kind, detail) = (String::new(), String::new());
        let event = Event { seq, at, kind, artifact: None, holder: None, detail, lease: None };
        Self { event, key: None, path: None, hidden: true }
    }

    /// What it is about, in words; the event's own where nothing has a name.
    pub fn object(&self) -> String {
        match (&self.path, &self.key) {
            (Some(path), _) => path.to_string(),
            (None, Some(key)) => key.to_string(),
            (None, None) => ".".to_owned(),
        }
    }
}

impl Workspace {
    /// Up to `limit` events whose number is above `after`, oldest first.
    pub fn events(&self, after: i64, limit: usize) -> Result<Vec<NamedEvent>> {
        let access = self.access(CheckoutId(0))?;
        let events = self.in_catalog(self.catalog().events(after, limit))?;
        let name = |event: Event| match access.sees_event(&event)? {
            true => self.name_event(event),
            false => Ok(NamedEvent::of_hidden(event)),
        };
        events.into_iter().map(name).collect()
    }

    /// What others did after an event to what a holder has, oldest first: broken, resolved or asked for; and after which
    /// event to ask the next time.
    pub fn told(&self, holder: &Holder, after: i64) -> Result<(Vec<NamedEvent>, i64)> {
        let (events, next) = self.in_catalog(self.catalog().told(holder, after))?;
        let named = events.into_iter().map(|event| self.name_event(event)).collect::<Result<_>>()?;
        Ok((named, next))
    }

    /// The number of the newest event, or 0.
    pub fn newest_event(&self) -> Result<i64> {
        Ok(self.in_catalog(self.catalog().event_range())?.map_or(0, |(_, newest)| newest))
    }

    /// Refuses a position after which events are forgotten already, since none may lack.
    pub fn check_events_after(&self, after: i64) -> Result<()> {
        match self.in_catalog(self.catalog().event_range())? {
            Some((oldest, _)) if after < oldest - 1 => Err(EngineError::Refused(format!(
                "events up to {} are forgotten; go on after that one, and read the leases anew",
                oldest - 1
            ))),
            _ => Ok(()),
        }
    }

    fn name_event(&self, event: Event) -> Result<NamedEvent> {
        let key = event.lease.as_ref().map(|lease| lease.key.clone());
        let Some(artifact) = event.artifact else {
            return Ok(NamedEvent { event, key, path: None, hidden: false });
        };
        let id = self.in_catalog(self.catalog().artifact_id(artifact))?;
        let checkout = match &event.holder {
            Some(holder) => self.checkout_or_head(holder)?,
            None => CheckoutId(0),
        };
        let path = self.in_catalog(self.catalog().any_path_of(checkout, artifact))?;
        let path = Some(path).filter(|path| !path.is_root() || artifact == Seq::ROOT);
        Ok(NamedEvent { event, key: key.or(id.map(ResourceKey::Artifact)), path, hidden: false })
    }
}
