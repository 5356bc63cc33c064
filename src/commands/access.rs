use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;

use super::error::{Result, one_line};
use super::output::{Printer, table};
use super::place::Context;
use crate::cli::{AccessAction, AccessArgs, CheckoutOfArgs};
use crate::engine::{AccessReport, GrantRecord, RestrictionRecord};
use crate::model::Grant;

/// Shows or changes who may see and change what.
pub(super) fn run(args: &AccessArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let mut printer = Printer::new(out, args.format.json);
    if let AccessAction::List(listed) = &args.action {
        return list(args, listed.path.as_ref(), context, &mut printer);
    }
    let workspace = context.workspace(&args.workspace)?;
    match &args.action {
        AccessAction::List(_) => {}
        AccessAction::Grant(given) => {
            let (principal, role, glob) = (given.principal.clone(), given.role, given.glob.clone());
            let grant = Grant { principal, role, glob };
            workspace.grant_access(&grant)?;
            printer.print(&GrantForm::of(&grant), |_| Ok(()))?;
        }
        AccessAction::Revoke(taken) => {
            let revoked = workspace.revoke_access(&taken.principal, taken.glob.as_ref())?;
            let form = RevokeForm { revoked: revoked.iter().map(GrantForm::of).collect() };
            let rows: Vec<Vec<String>> = revoked.iter().map(grant_row).collect();
            printer.print(&form, |out| table(out, "", &rows))?;
        }
        AccessAction::Restrict(hidden) => {
            let changed = workspace.restrict_access(&hidden.glob, hidden.undo)?;
            let form = RestrictForm { glob: hidden.glob.to_string(), restricted: !hidden.undo, changed };
            let note = match (changed, hidden.undo) {
                (true, _) => None,
                (false, false) => Some("was restricted already"),
                (false, true) => Some("was not restricted"),
            };
            printer.print(&form, |out| match note {
                Some(note) => writeln!(out, "{}: {note}", one_line(hidden.glob.as_str())),
                None => Ok(()),
            })?;
        }
    }
    Ok(())
}

fn list(
    args: &AccessArgs,
    path: Option<&PathBuf>,
    context: &Context,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let paths: Vec<PathBuf> = path.cloned().into_iter().collect();
    let site = context.site(&args.workspace, &CheckoutOfArgs::default(), &paths)?;
    let report = site.workspace.access_report(&site.holder, site.paths.first())?;
    printer.print(&AccessForm::of(&report), |out| human(out, &report))?;
    Ok(())
}

fn human(out: &mut dyn Write, report: &AccessReport) -> io::Result<()> {
    writeln!(out, "you are {}, {} here", report.principal, report.role)?;
    let restrictions = report.records.restrictions.iter();
    let restricted = restrictions
        .map(|record| vec!["restricted".to_owned(), record.glob.to_string(), "by ".to_owned() + &record.by]);
    let grants = report.records.grants.iter().map(|record| {
        let mut row = grant_row(&record.grant);
        row.push(format!("by {}", record.by));
        row
    });
    table(out, "", &restricted.collect::<Vec<_>>())?;
    table(out, "", &grants.collect::<Vec<_>>())
}

/// Principal, role and glob.
fn grant_row(grant: &Grant) -> Vec<String> {
    vec![grant.principal.to_string(), grant.role.to_string(), grant.glob.to_string()]
}

#[derive(Serialize)]
struct GrantForm {
    principal: String,
    role: &'static str,
    glob: String,
}

impl GrantForm {
    fn of(grant: &Grant) -> Self {
        let Grant { principal, role, glob } = grant;
        Self { principal: principal.to_string(), role: role.as_str(), glob: glob.to_string() }
    }
}

#[derive(Serialize)]
struct RevokeForm {
    revoked: Vec<GrantForm>,
}

#[derive(Serialize)]
struct RestrictForm {
    glob: String,
    restricted: bool,
    changed: bool,
}

#[derive(Serialize)]
struct GrantRecordForm {
    #[serde(flatten)]
    grant: GrantForm,
    by: String,
    at: String,
}

#[derive(Serialize)]
struct RestrictionForm {
    glob: String,
    by: String,
    at: String,
}

#[derive(Serialize)]
struct AccessForm {
    principal: String,
    role: &'static str,
    restrictions: Vec<RestrictionForm>,
    grants: Vec<GrantRecordForm>,
}

impl AccessForm {
    fn of(report: &AccessReport) -> Self {
        let restriction = |record: &RestrictionRecord| RestrictionForm {
            glob: record.glob.to_string(),
            by: record.by.clone(),
            at: record.at.to_rfc3339(),
        };
        let grant = |record: &GrantRecord| GrantRecordForm {
            grant: GrantForm::of(&record.grant),
            by: record.by.clone(),
            at: record.at.to_rfc3339(),
        };
        Self {
            principal: report.principal.to_string(),
            role: report.role.as_str(),
            restrictions: report.records.restrictions.iter().map(restriction).collect(),
            grants: report.records.grants.iter().map(grant).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::AccessRecords;
    use crate::model::{AccessGlob, Role, Timestamp};

    #[test]
    fn rules_are_listed_in_columns() {
        let (at, glob) = (Timestamp(0), AccessGlob::new("hr/**").unwrap());
        let grant = Grant { principal: "bob".parse().unwrap(), role: Role::Viewer, glob: glob.clone() };
        let report = AccessReport {
            principal: "ada".parse().unwrap(),
            role: Role::Owner,
            records: AccessRecords {
                grants: vec![GrantRecord { grant, by: "ada".into(), at }],
                restrictions: vec![RestrictionRecord { glob, by: "root".into(), at }],
            },
        };
        let mut out = Vec::new();
        human(&mut out, &report).unwrap();
        let expected = "you are ada, owner here\nrestricted  hr/**  by root\nbob  viewer  hr/**  by ada\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
