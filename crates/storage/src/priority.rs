//! Threads whose work can wait: they write and merge what memory and log have as well, while others have somebody who waits for
//! their answer.

use rustix::process::setpriority_process;

/// So much that a thread which answers gets three quarters of a processor that both want, and has it back at once when it wakes
/// up; so little that a checkpoint comes to an end on a machine that is busy for good, since until then the log grows.
const NICENESS: i32 = 5;

/// This thread, and those that it starts from here on, leave the processors to others.
pub fn give_way() {
    // On Linux nobody is a process of its own here, but each thread is. It may be as nice as that already, which is as well.
    let _ = setpriority_process(None, NICENESS);
}
