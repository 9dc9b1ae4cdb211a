//! A disk in memory that fails the way disks fail: for the tests of everything that keeps data in a log.
//!
//! It keeps apart what programs see and what a power cut leaves. Every call that changes something has a number; a [`Fault`]
//! strikes at one of them. [`FaultDisk::power_cut`] then decides by a seed what remains of everything unsynced: any write may
//! be there, be gone or be there in part, a later one as well as an earlier one, and the same holds for changes of names.

use crate::disk::{Disk, DiskFile};
use crate::handle::lock;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power fails before the call does anything.
    CrashBefore,
    /// The power fails in the middle: a write is torn at any byte, a sync makes only some of it durable.
    CrashDuring,
    /// The power fails when the call is done, before anybody hears of it.
    CrashAfter,
    /// The call fails with an I/O error. After a failed sync of a file what it should have written is clean but not durable,
    /// as on Linux: reads show it, and no later sync writes it. Names are journalled, and stay unsynced until a sync succeeds.
    Error,
}

#[derive(Clone)]
pub struct FaultDisk(Arc<Mutex<State>>);

pub struct FaultFile {
    disk: FaultDisk,
    inode: usize,
}

#[derive(Clone, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of `names` that are not in `durable_names` yet.
    renames: Vec<Rename>,
    calls: u64,
    fault: Option<(u64, Fault)>,
    off: bool,
    bytes_max: Option<u64>,
    random: Random,
}

#[derive(Clone, Default)]
struct Inode {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Writes that are in `seen` only.
    dirty: Vec<Write>,
}

#[derive(Clone)]
struct Write {
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Clone)]
enum Rename {
    Create { name: String, inode: usize },
    Move { from: String, to: String },
    Remove { name: String },
}

impl FaultDisk {
    /// An empty disk. The seed decides what survives.
    pub fn new(seed: u64) -> FaultDisk {
        FaultDisk(Arc::new(Mutex::new(State { random: Random(seed), ..State::default() })))
    }

    /// Lets a fault strike at the changing call with this number; the next one has [`Self::calls`].
    pub fn fail_at(&self, call: u64, fault: Fault) {
        self.state().fault = Some((call, fault));
    }

    /// How many calls have changed something.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Whether a crash has struck. Every call fails from then on.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// Bounds the sum of all file lengths; a write beyond it is done in part.
    pub fn set_bytes_max(&self, bytes_max: Option<u64>) {
        self.state().bytes_max = bytes_max;
    }

    /// Cuts the power: what the disk holds when it comes back, chosen by `seed`. This disk is off from now on.
    pub fn power_cut(&self, seed: u64) -> FaultDisk {
        let mut state = self.state();
        state.off = true;
        let mut after = state.clone();
        drop(state);
        after.random = Random(seed);
        after.lose_power();
        FaultDisk(Arc::new(Mutex::new(after)))
    }

    /// A copy as another process would find it after this one has died: everything written is still seen.
    pub fn process_end(&self) -> FaultDisk {
        let mut after = self.state().clone();
        (after.fault, after.off) = (None, false);
        FaultDisk(Arc::new(Mutex::new(after)))
    }

    /// What programs see in a file.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(name).map(|inode| state.inodes[*inode].seen.clone())
    }

    /// Puts a file there, durably and without a call; `None` takes it away.
    pub fn replace(&self, name: &str, contents: Option<Vec<u8>>) {
        let mut state = self.state();
        match contents {
            Some(bytes) => {
                let inode = state.inodes.len();
                state.inodes.push(Inode { seen: bytes.clone(), durable: bytes, dirty: Vec::new() });
                state.names.insert(name.to_owned(), inode);
                state.durable_names.insert(name.to_owned(), inode);
            }
            None => {
                state.names.remove(name);
                state.durable_names.remove(name);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    /// Counts a changing call, and says what happens to it.
    fn strike(&mut self) -> io::Result<Option<Fault>> {
        self.check_power()?;
        let call = self.calls;
        self.calls += 1;
        match self.fault {
            Some((at, fault)) if at == call => {
                self.off = fault != Fault::Error;
                if fault == Fault::CrashBefore { Err(power_is_off()) } else { Ok(Some(fault)) }
            }
            _ => Ok(None),
        }
    }

    fn check_power(&self) -> io::Result<()> {
        if self.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn inode(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no file {name}")))
    }

    /// A change of names: during a crash it happens or does not.
    fn change_names(&mut self, rename: Rename) -> io::Result<()> {
        let fault = self.strike()?;
        let happens = fault.is_none_or(|fault| fault == Fault::CrashAfter || self.random.below(2) == 0);
        if happens && fault != Some(Fault::Error) {
            rename.apply(&mut self.names);
            self.renames.push(rename);
        }
        outcome(fault)
    }

    fn write(&mut self, inode: usize, bytes: &[u8], at: usize) -> io::Result<()> {
        let fault = self.strike()?;
        let torn = matches!(fault, Some(Fault::CrashDuring | Fault::Error));
        let wanted = if torn { self.random.below(bytes.len() + 1) } else { bytes.len() };
        let written = wanted.min(self.room(inode).saturating_sub(at));
        let write = Write { at, bytes: bytes[..written].to_vec() };
        write.apply(&mut self.inodes[inode].seen);
        self.inodes[inode].dirty.push(write);
        outcome(fault)?;
        if written < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// How long a file may get.
    fn room(&self, inode: usize) -> usize {
        let Some(bytes_max) = self.bytes_max else { return usize::MAX };
        let others = self.names.values().filter(|other| **other != inode).map(|other| self.inodes[*other].seen.len());
        let room = (bytes_max as usize).saturating_sub(others.sum());
        room.max(self.inodes[inode].seen.len())
    }

    fn sync(&mut self, inode: usize) -> io::Result<()> {
        let fault = self.strike()?;
        let dirty = std::mem::take(&mut self.inodes[inode].dirty);
        for write in dirty {
            let whole = !matches!(fault, Some(Fault::CrashDuring | Fault::Error));
            let kept = if whole { Some(write.clone()) } else { self.random.some_of(&write) };
            kept.iter().for_each(|kept| kept.apply(&mut self.inodes[inode].durable));
            if fault == Some(Fault::CrashDuring) {
                self.inodes[inode].dirty.push(write);
            }
        }
        outcome(fault)
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        let fault = self.strike()?;
        if !matches!(fault, Some(Fault::CrashDuring | Fault::Error)) {
            self.renames.drain(..).for_each(|rename| rename.apply(&mut self.durable_names));
        }
        outcome(fault)
    }

    fn lose_power(&mut self) {
        self.lose_renames();
        self.names = self.durable_names.clone();
        for inode in &mut self.inodes {
            for write in std::mem::take(&mut inode.dirty) {
                self.random.some_of(&write).iter().for_each(|kept| kept.apply(&mut inode.durable));
            }
            inode.seen = inode.durable.clone();
        }
        (self.off, self.fault) = (false, None);
    }

    /// Each change of names becomes durable or never will; one that needs a lost one is lost as well.
    fn lose_renames(&mut self) {
        for rename in std::mem::take(&mut self.renames) {
            if self.random.below(2) == 0 {
                rename.apply(&mut self.durable_names);
            }
        }
    }
}

impl Write {
    fn apply(&self, file: &mut Vec<u8>) {
        let end = self.at + self.bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[self.at..end].copy_from_slice(&self.bytes);
    }
}

impl Rename {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Rename::Create { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            Rename::Move { from, to } => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Rename::Remove { name } => {
                names.remove(name);
            }
        }
    }
}

fn outcome(fault: Option<Fault>) -> io::Result<()> {
    match fault {
        None => Ok(()),
        Some(Fault::Error) => Err(io::Error::other("input/output error (injected)")),
        Some(_) => Err(power_is_off()),
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off (injected)")
}

impl Disk for FaultDisk {
    type File = FaultFile;

    fn open(&self, name: &str) -> io::Result<FaultFile> {
        let state = self.state();
        state.check_power()?;
        Ok(FaultFile { inode: state.inode(name)?, disk: self.clone() })
    }

    fn create(&self, name: &str) -> io::Result<FaultFile> {
        let mut state = self.state();
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.change_names(Rename::Create { name: name.to_owned(), inode })?;
        Ok(FaultFile { inode, disk: self.clone() })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.inode(from)?;
        state.change_names(Rename::Move { from: from.to_owned(), to: to.to_owned() })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.inode(name)?;
        state.change_names(Rename::Remove { name: name.to_owned() })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state();
        state.check_power()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.state().sync_dir()
    }
}

impl DiskFile for FaultFile {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let state = self.disk.state();
        state.check_power()?;
        let at = at as usize;
        let bytes = state.inodes[self.inode].seen.get(at..at + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.disk.state().write(self.inode, bytes, at as usize)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.state().sync(self.inode)
    }

    fn bytes(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.check_power()?;
        Ok(state.inodes[self.inode].seen.len() as u64)
    }
}

/// SplitMix64: chance that a test can repeat.
#[derive(Clone, Default)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// What is left of a write that was not synced: nothing, all, or any stretch of it.
    fn some_of(&mut self, write: &Write) -> Option<Write> {
        match self.below(3) {
            0 => None,
            1 => Some(write.clone()),
            _ => {
                let from = self.below(write.bytes.len() + 1);
                let to = from + self.below(write.bytes.len() - from + 1);
                let from = if self.below(2) == 0 { 0 } else { from };
                Some(Write { at: write.at + from, bytes: write.bytes[from..to].to_vec() })
            }
        }
    }
}
