//! The engine behind the seam that frontends hold.

use super::{
    AuditPage, AuditQuestion, ClearRequest, Cleared, Commits, Committed, Corrected, CorrectionEffects, CorrectionError,
    CorrectionList, CorrectionRequest, CounterTotal, Engine, Explained, FoundCorrection, HistoryPage, MatchedSum,
    Matching, Page, Place, PreviewPart, Proposed, Ranking, Refusal, Said, Seen, SeriesFound, SeriesWanted, Snapshot,
    TooMuch, TopFound, TopWanted,
};
use crate::counters::{Answering, Counters, Host};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use tally_core::counter::{Declarations, Durability, Target};
use tally_core::database::Space;
use tally_core::fact::Request;
use tally_core::fates::Balance;
use tally_core::id::{CellHasher, CellKey};
use tally_core::ledger::Proposal;
use tally_core::op::Submission;
use tally_core::position::Position;
use tally_core::values::ChangedKey;

impl Engine {
    /// The process around it.
    pub fn host(&self) -> Host {
        let shared = &self.shared;
        Host {
            clock: shared.clock.clone(),
            metrics: shared.metrics.clone(),
            troubles: shared.troubles.clone(),
            spawner: shared.workers.spawner(),
            archive: None,
            sql: None,
            reconcile: None,
            anomalies: None,
            backups: None,
            probes: None,
        }
    }
}

impl Counters for Engine {
    fn declarations(&self) -> Arc<Declarations> {
        self.declarations()
    }

    fn hasher(&self) -> CellHasher {
        self.hasher()
    }

    fn durability(&self) -> Durability {
        self.shared.durability
    }

    fn health(&self) -> Result<(), Refusal> {
        self.health()
    }

    fn count(&self) -> u64 {
        self.len()
    }

    fn applied(&self) -> Position {
        self.applied()
    }

    fn place_of(&self, position: Position) -> Answering<'_, Place> {
        Box::pin(self.place_of(position))
    }

    fn wait_for(&self, offset: u64) -> BoxFuture<'_, ()> {
        Box::pin(self.wait_for(offset))
    }

    fn submit(&self, submission: Submission) -> Answering<'_, Committed> {
        Box::pin(self.submit(submission))
    }

    fn see<'a>(&'a self, cells: &'a [CellKey]) -> Answering<'a, Vec<Seen>> {
        Box::pin(self.see(cells))
    }

    fn scan(&self, space: Space, prefix: Vec<u8>, after: Option<Vec<u8>>, limit: usize) -> Answering<'_, Page> {
        Box::pin(self.scan(space, prefix, after, limit))
    }

    fn series(&self, wanted: Vec<SeriesWanted>) -> Answering<'_, Result<Vec<SeriesFound>, TooMuch>> {
        Box::pin(self.series(wanted))
    }

    fn top(&self, wanted: TopWanted) -> Answering<'_, TopFound> {
        Box::pin(self.top(wanted))
    }

    fn sum<'a>(&'a self, of: &'a Matching) -> Answering<'a, Option<MatchedSum>> {
        Box::pin(self.sum(of))
    }

    fn total<'a>(&'a self, counter: &'a str) -> Answering<'a, Option<CounterTotal>> {
        Box::pin(self.total(counter))
    }

    fn greatest<'a>(
        &'a self,
        counter: &'a str,
        behind: Option<(i64, Vec<u8>)>,
        limit: usize,
    ) -> Answering<'a, Option<Ranking>> {
        Box::pin(self.greatest(counter, behind, limit))
    }

    fn changed_last<'a>(
        &'a self,
        counter: &'a str,
        behind: Option<(u64, Vec<u8>)>,
        limit: usize,
    ) -> Answering<'a, Option<Vec<ChangedKey>>> {
        Box::pin(self.changed_last(counter, behind, limit))
    }

    fn changed_at_ms(&self, ids: Vec<Vec<u8>>) -> Answering<'_, Vec<Option<u64>>> {
        Box::pin(self.changed_at_ms(ids))
    }

    fn explain<'a>(&'a self, target: &'a Target<'a>, all_values: bool) -> Answering<'a, Explained> {
        Box::pin(self.explain(target, all_values))
    }

    fn history<'a>(&'a self, target: &'a Target<'a>, before: u64, limit: usize) -> Answering<'a, HistoryPage> {
        Box::pin(self.history(target, before, limit))
    }

    fn said(&self, cell: CellKey, generation: u64) -> Answering<'_, (u64, Said)> {
        Box::pin(self.said(cell, generation))
    }

    fn balances(&self) -> Answering<'_, (Vec<Balance>, Position)> {
        Box::pin(self.balances())
    }

    fn duplicates<'a>(&'a self, wanted: &'a AuditQuestion) -> Answering<'a, AuditPage> {
        Box::pin(self.duplicates(wanted))
    }

    fn corrections(&self, before: u64, limit: usize) -> Answering<'_, CorrectionList> {
        Box::pin(self.corrections(before, limit))
    }

    fn correction(&self, number: u64) -> Answering<'_, Option<FoundCorrection>> {
        Box::pin(self.correction(number))
    }

    fn preview<'a>(&'a self, found: &'a FoundCorrection, part: &'a PreviewPart) -> Answering<'a, CorrectionEffects> {
        Box::pin(self.preview(found, part))
    }

    fn propose(&self, proposal: Proposal, once: Option<Request>) -> Answering<'_, Proposed, CorrectionError> {
        Box::pin(self.proposed(proposal, once))
    }

    fn withdraw(&self, number: u64) -> Answering<'_, bool> {
        Box::pin(self.withdraw(number))
    }

    fn correct(&self, request: CorrectionRequest) -> Answering<'_, Corrected, CorrectionError> {
        Box::pin(self.corrected(request))
    }

    fn clear(&self, request: ClearRequest) -> Answering<'_, Cleared, CorrectionError> {
        Box::pin(self.clear(request))
    }

    fn commits(&self) -> &Commits {
        self.commits()
    }

    fn follow(&self) -> Answering<'_, Position> {
        Box::pin(self.follow_commits())
    }

    fn snapshot(&self) -> Answering<'_, Arc<Snapshot>> {
        Box::pin(self.snapshot())
    }

    fn held_snapshot(&self, position: Position) -> Option<Arc<Snapshot>> {
        self.held_snapshot(position)
    }

    fn told_snapshot(&self, snapshot: &Arc<Snapshot>) {
        self.told_snapshot(snapshot);
    }
}
