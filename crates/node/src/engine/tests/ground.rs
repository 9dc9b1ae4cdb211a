//! A store and a log that outlive the engines on them.

use super::*;
use crate::house::House;
use tally_storage::log::Log;
use tally_storage::log::local::LocalHandle;

pub struct Ground {
    pub store: Arc<dyn Store>,
    pub disk: FaultDisk,
    pub options: EngineOptions,
    pub config: Option<&'static str>,
    pub segment_bytes: u64,
    pub log: RefCell<Option<LocalHandle<FaultDisk>>>,
    pub commits: FaultDisk,
}

/// The second log on a disk. There is no other disk to begin anew on.
pub fn commits_on(disk: &FaultDisk, anew: bool) -> Result<LocalLog<FaultDisk>, LogError> {
    assert!(!anew, "the commits are ahead of the log");
    let options = LogOptions { segment_bytes: 64 << 10, log_id: 9, tail_only: true, ..LogOptions::default() };
    Ok(LocalLog::open_on(disk.clone(), options)?.0)
}

impl Ground {
    pub fn new(table_bytes: usize) -> Ground {
        let options = EngineOptions { table_bytes, ..EngineOptions::default() };
        let (store, disk) = (Arc::<MemoryStore>::default(), FaultDisk::new(1));
        Ground {
            store,
            disk,
            options,
            config: None,
            segment_bytes: 8 << 20,
            log: RefCell::default(),
            commits: FaultDisk::new(2),
        }
    }

    pub fn open(&self) -> (EngineThread<LocalLog<FaultDisk>>, Recovered) {
        self.try_open().unwrap()
    }

    pub fn try_open(&self) -> Result<(EngineThread<LocalLog<FaultDisk>>, Recovered), recovery::RecoveryError> {
        // The checkpoint thread of the engine before has to end first.
        while Arc::strong_count(&self.store) > 1 {
            std::thread::yield_now();
        }
        let open_log = |from_offset| {
            let segment_bytes = self.segment_bytes;
            let options = LogOptions { segment_bytes, log_id: 9, from_offset, ..LogOptions::default() };
            let log = LocalLog::open_on(self.disk.clone(), options)?.0;
            self.log.replace(Some(log.handle()));
            Ok(log)
        };
        let open_commits = |anew| commits_on(&self.commits, anew);
        let declarations = self.config.map(|yaml| Declarations::parse(yaml).unwrap());
        let restored = recovery::restore(&*self.store, CellHasher::new(1), self.options.table_bytes).unwrap();
        let (store, options) = (self.store.clone(), self.options.clone());
        recovery::open(restored, store, open_log, open_commits, declarations, options)
    }

    /// Opens an engine and drops it where it stands when `test` is done.
    pub fn live<T>(&self, test: impl AsyncFnOnce(Engine) -> T) -> T {
        beside(self.open().0, test)
    }

    /// Looks after the log's files, as the node does all the time; a full disk passes.
    pub fn keep_house(&self, engine: &Engine) {
        let log = self.log.borrow().clone().expect("an engine is running");
        let kept = House::new(log, engine.clone()).look_after();
        assert!(matches!(kept, Ok(_) | Err(LogError::Full(_))), "{kept:?}");
    }
}
