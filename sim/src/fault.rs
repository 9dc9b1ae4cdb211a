//! Every kind of fault, and how often each has struck.

/// What struck so often has met most of what can be under way.
const OFTEN: u64 = 1000;

macro_rules! faults {
    ($($name:ident: $text:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Fault { $($name),* }

        impl Fault {
            pub const ALL: [Fault; 0 $(+ { let _ = Fault::$name; 1 })*] = [$(Fault::$name),*];

            pub fn text(self) -> &'static str {
                match self { $(Fault::$name => $text),* }
            }
        }
    };
}

faults! {
    CrashReading: "an owner dies between two batches",
    CrashBeforeCommit: "an owner dies with a slot that is over and nowhere written",
    CrashBetweenParts: "an owner dies between a commit and the last of its parts",
    CrashBeforeManifest: "an owner dies behind the objects of a cut and before its manifest",
    CrashBehindManifest: "an owner dies behind the manifest and before its local copy",
    Pause: "an owner stands still",
    Zombie: "an owner is replaced, and goes on",
    CollectorCrash: "a collector dies",
    OldImage: "a collector comes back from an old copy of its disk",
    LostAnswer: "a batch is appended and its sender does not hear of it",
    LostSend: "a batch is lost on its way",
    DelayedSend: "a batch arrives long after it was given up",
    DuplicateSend: "a batch is sent twice",
    Reordered: "partitions are read in another order than they were written",
    SpoolNewestFirst: "a spool is drained newest first",
    UnsyncedLoss: "what was written and not synced is gone",
    ClockForward: "a clock jumps ahead",
    ClockBack: "a clock jumps back",
    BrokerAhead: "the clock of a log is an hour ahead",
    ViewBackInTime: "a view comes back from an old copy",
    ViewBucketLost: "a view loses a bucket",
    ViewAnswerLost: "a view does not answer",
    StoreAnswerLost: "the object store does not answer",
    StoreFenced: "the object store has another manifest",
    ConfigChange: "a configuration changes in between",
    LateRun: "a late run in between",
    Correction: "a correction in between that adjusts",
    Restore: "a correction in between that restores",
    Clear: "a clear in between",
    BehindClear: "a slot that was judged before a clear arrives behind it",
    UndoneBehindClear: "what counted in such a slot is taken back",
    Revert: "a correction or a clear is taken back",
    ControlBehind: "a batch carries older control than its log has",
    ControlLag: "a collector does not know of control that others have",
    StaleLocal: "the local copy is older than the chain",
    NoLocal: "the local copy is gone",
    AnswerLost: "an answer does not reach its client",
    ClientRetry: "a client sends the same event again",
    PowerCut: "the power fails: any unsynced write is there, torn or gone",
    ProcessEnd: "the process is killed",
    TornWrite: "a write is torn",
    FailedCall: "a call of the disk fails",
    DiskFull: "the disk is full",
    StoreFails: "the store refuses a cut",
    CutInBetween: "a cut at any moment",
    InFlight: "a node ends while requests are under way",
    ColdCells: "counters have left memory",
    FollowerLost: "somebody who follows has lost what he has",
}

#[derive(Clone, Debug)]
pub struct Faults([u64; Fault::ALL.len()]);

impl Default for Faults {
    fn default() -> Faults {
        Faults([0; Fault::ALL.len()])
    }
}

impl Faults {
    pub fn hit(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    pub fn add(&mut self, other: &Faults) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// As a table in Markdown with a column for each world, of those that struck.
pub fn table(worlds: &[(&str, Faults)]) -> String {
    let of = |fault| worlds.iter().map(move |(_, faults)| faults.of(fault));
    let row = |first: &str, cells: Vec<String>| format!("| {first} | {} |\n", cells.join(" | "));
    let mut table = row("fault", worlds.iter().map(|(world, _)| (*world).to_owned()).collect());
    table += &format!("|---|{}\n", "---:|".repeat(worlds.len()));
    let struck = || Fault::ALL.into_iter().filter(|fault| of(*fault).sum::<u64>() > 0);
    for fault in struck() {
        table +=
            &row(fault.text(), of(fault).map(|hits| if hits > 0 { hits.to_string() } else { String::new() }).collect());
    }
    let often = struck().filter(|fault| of(*fault).sum::<u64>() >= OFTEN).count();
    table + &format!("\n{} kinds of faults, {often} of them at least {OFTEN} times\n", struck().count())
}
