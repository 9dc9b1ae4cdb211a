//! The settings that any counter may have, each refused where its mode has no use for it. Those of one contract are in its file.

use super::fields::Fields;
use crate::counter::{
    Anomalies, Archived, BackupSchedule, Clocks, ConfigError, Durability, Idempotency, Jumps, Lateness, Mode, Probes,
    Rule, duration,
};

/// Refuses what the mode has no use for.
pub(super) fn check_mode(fields: &Fields<'_>, mode: Mode) {
    for (name, (why, fix)) in mode.refused_fields() {
        if let Some(key) = fields.key(name) {
            let message = format!("{name:?} does not go with mode {:?}: {why}", mode.name());
            fields.source.report(fields.source.error(key, message, fix));
        }
    }
}

/// `None` if it is wrong. Without rules nobody knows them.
pub(super) fn lateness(counter: &Fields<'_>, rules: Option<&[Rule]>) -> Option<Option<Lateness>> {
    let source = counter.source;
    let Some(fields) = source.keep(counter.group("lateness"))? else { return Some(None) };
    if rules.is_some_and(<[Rule]>::is_empty) {
        let message = "only events have a time of their own to be late by, and this counter has no rules";
        return source.keep(Err(source.error(fields.item, message, "remove it")));
    }
    let [allowed_ms, corrected_ms, every_ms, restated_ms] =
        ["allowed", "corrected", "every", "restated"].map(|name| source.keep(fields.duration(name)));
    let lateness = Lateness {
        allowed_ms: allowed_ms?,
        corrected_ms: corrected_ms?,
        every_ms: every_ms?,
        restated_ms: restated_ms?,
    };
    if lateness.allowed_ms > lateness.corrected_ms {
        let message = format!(
            "allowed is {} and corrected only {}; what is allowed needs no correction",
            duration::shown(lateness.allowed_ms),
            duration::shown(lateness.corrected_ms)
        );
        let place = fields.get("corrected").or(fields.get("allowed")).unwrap_or(fields.item);
        return source.keep(Err(source.error(place, message, "make corrected the longer one")));
    }
    Some(Some(lateness))
}

pub(super) fn durability(counter: &Fields<'_>, mode: Mode) -> Result<Option<Durability>, ConfigError> {
    let needed = mode.terms().durability;
    let Some(word) = counter.word("durability")? else { return Ok(needed.map(|(needed, _)| needed)) };
    let given = Durability::ALL.into_iter().find(|durability| durability.name() == word);
    match (needed, counter.get("durability")) {
        (Some((needed, why)), Some(item)) if given != Some(needed) => {
            let message = format!("durability {word:?} does not go with mode {:?}: {why}", mode.name());
            Err(counter.source.error(item, message, format!("write {} or remove the field", needed.name())))
        }
        _ => Ok(given),
    }
}

/// What is believed of senders' clocks, for the whole node. `None` if it is wrong.
pub(super) fn clocks(configuration: &Fields<'_>) -> Option<Clocks> {
    let source = configuration.source;
    let Some(fields) = source.keep(configuration.group("clocks"))? else { return Some(Clocks::default()) };
    Some(Clocks { ahead_ms: source.keep(fields.duration("ahead"))? })
}

/// The archive, for the whole node. `None` if it is wrong.
pub(super) fn archived(configuration: &Fields<'_>) -> Option<Archived> {
    let source = configuration.source;
    let fields = match source.keep(configuration.word_or_group("archive"))? {
        None => return Some(Archived::default()),
        Some(None) => return Some(Archived::No),
        Some(Some(fields)) => fields,
    };
    let keep = source.keep(fields.keep("keep"))?;
    Some(keep.map_or(Archived::default(), |keep_ms| Archived::For { keep_ms }))
}

/// When backups are taken, for the whole node. `None` if it is wrong.
pub(super) fn backups(configuration: &Fields<'_>) -> Option<Option<BackupSchedule>> {
    let source = configuration.source;
    let Some(fields) = source.keep(configuration.group("backup"))? else { return Some(None) };
    let (every_ms, keep) = (source.keep(fields.duration("every")), source.keep(fields.number("keep")));
    Some(Some(BackupSchedule { every_ms: every_ms?, keep: keep? }))
}

/// Whether probes are sent, for the whole node. `None` if it is wrong.
pub(super) fn probes(configuration: &Fields<'_>) -> Option<Option<Probes>> {
    let source = configuration.source;
    let Some(fields) = source.keep(configuration.group("probes"))? else { return Some(None) };
    source.keep(fields.required("every"))?;
    let [every_ms, within_ms, archived_ms] =
        ["every", "within", "archivedWithin"].map(|name| source.keep(fields.duration(name)));
    Some(Some(Probes { every_ms: every_ms?, within_ms: within_ms?, archived_ms: archived_ms? }))
}

/// Rates that jump, for the whole node. `None` if it is wrong.
pub(super) fn anomalies(configuration: &Fields<'_>) -> Option<Anomalies> {
    let source = configuration.source;
    let fields = match source.keep(configuration.word_or_group("anomalies"))? {
        None => return Some(Anomalies::default()),
        Some(None) => return Some(Anomalies::No),
        Some(Some(fields)) => fields,
    };
    let (factor, least) = (source.keep(fields.number("factor")), source.keep(fields.number("least")));
    Some(Anomalies::Told(Jumps { factor: factor?, least: least? }))
}

/// The keys of idempotent direct writes, for the whole node. `None` if they are wrong.
pub(super) fn keys(configuration: &Fields<'_>) -> Option<Idempotency> {
    let source = configuration.source;
    let Some(fields) = source.keep(configuration.group("idempotency"))? else { return Some(Idempotency::DEFAULT) };
    let (keep_ms, keys_max) = (source.keep(fields.duration("keep")), source.keep(fields.number("maxKeys")));
    Some(Idempotency { keep_ms: keep_ms?, keys_max: keys_max? })
}
