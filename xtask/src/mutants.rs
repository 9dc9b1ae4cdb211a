//! `cargo xtask mutants`: plants small breaks one at a time, and looks whether the test that ought to notice does.
//!
//! A test suite is worth what it catches. Each break of [`list`] is made in a copy of the last commit, and the test named beside it
//! must fail there; before that it must pass without it. The table goes to `docs/mutants.md`; of breaks that are not run it keeps the row.

mod list;

use crate::shell::{self, step};
use anyhow::{Context, Result, bail, ensure};
use list::{MUTANTS, Mutant, Suite};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A test that hangs on a break has noticed it.
const PATIENCE_SECONDS: &str = "300";
/// A compiler on a busy machine takes its time.
const NO_END: &str = "0";

#[derive(clap::Args)]
pub struct MutantsArgs {
    /// Only look whether every break can still be made where the list says
    #[arg(long)]
    check: bool,
    /// Only those whose name has this in it
    #[arg(long)]
    only: Option<String>,
    /// Only those that the table does not have as they are now
    #[arg(long)]
    new: bool,
}

const TABLE: &str = "docs/mutants.md";

pub fn run(args: MutantsArgs) -> Result<()> {
    check(shell::workspace())?;
    if args.check {
        return Ok(());
    }
    let known = fs::read_to_string(shell::workspace().join(TABLE))?;
    let is_named = |mutant: &Mutant| args.only.as_deref().is_none_or(|only| mutant.what.contains(only));
    let is_wanted = |mutant: &&Mutant| is_named(mutant) && !(args.new && row_of(&known, mutant).is_some());
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(is_wanted).collect();
    let tree = copy_of_the_last_commit()?;
    step("the tests pass without any break");
    for (suite, test) in mutants.iter().map(|mutant| (mutant.suite, mutant.test)).collect::<BTreeSet<_>>() {
        ensure!(passes(&tree, suite, test)? == Verdict::Survived, "{test} does not pass as it is");
    }
    step("and notice each one");
    let verdicts = mutants.iter().map(|mutant| plant(&tree, mutant)).collect::<Result<Vec<_>>>()?;
    let noticed = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Failed | Verdict::Hung)).count();
    println!("\n{noticed} of {} breaks were noticed", mutants.len());
    fs::write(shell::workspace().join(TABLE), table(&mutants, &verdicts, &known))?;
    ensure!(noticed == mutants.len(), "{} breaks were not noticed, or are none", mutants.len() - noticed);
    Ok(())
}

/// Every break must be possible in exactly one place.
pub fn check(tree: &Path) -> Result<()> {
    for mutant in MUTANTS {
        broken(tree, mutant)?;
    }
    println!("  {} breaks can be made", MUTANTS.len());
    Ok(())
}

/// The file with the break in it.
fn broken(tree: &Path, mutant: &Mutant) -> Result<String> {
    let Mutant { what, file, from, to, .. } = mutant;
    let text = fs::read_to_string(tree.join(file)).with_context(|| format!("{file}, for {what:?}"))?;
    let places = text.matches(from).count();
    ensure!(places == 1, "{file} has {places} places for {what:?}, and not one: {from:?}");
    Ok(text.replacen(from, to, 1))
}

fn copy_of_the_last_commit() -> Result<PathBuf> {
    let tree = shell::target_dir()?.join("mutants").join("tree");
    let path = tree.to_str().context("the path of the copy is no text")?;
    if tree.exists() {
        shell::run("git", &["worktree", "remove", "--force", path])?;
    }
    shell::run("git", &["worktree", "add", "--detach", "--force", path, "HEAD"])?;
    Ok(tree)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Survived,
    Failed,
    Hung,
    /// It does not compile, which says nothing about the test.
    NoProgram,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Verdict::Survived => "**not at all**",
            Verdict::NoProgram => "**it does not compile**",
            Verdict::Failed => "failed",
            Verdict::Hung => "hung",
        }
    }
}

fn plant(tree: &Path, mutant: &Mutant) -> Result<Verdict> {
    let path = tree.join(mutant.file);
    let whole = fs::read_to_string(&path)?;
    fs::write(&path, broken(tree, mutant)?)?;
    let verdict = passes(tree, mutant.suite, mutant.test);
    fs::write(&path, whole)?;
    let verdict = verdict.with_context(|| mutant.what)?;
    println!("  {:10} {}", format!("{verdict:?}").to_lowercase(), mutant.what);
    Ok(verdict)
}

/// Runs one test of a tree.
fn passes(tree: &Path, suite: Suite, test: &str) -> Result<Verdict> {
    let cargo = |seconds: &str, last: &str| -> Result<Output> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", seconds, "cargo", "test", "--quiet"]).args(suite.arguments()).arg(last);
        command.current_dir(tree).env("CARGO_TARGET_DIR", tree.with_file_name("target"));
        command.output().context("cargo could not be started")
    };
    let built = cargo(NO_END, "--no-run")?;
    if !built.status.success() {
        println!("{}", String::from_utf8_lossy(&built.stderr));
        return Ok(Verdict::NoProgram);
    }
    let ran = cargo(PATIENCE_SECONDS, test)?;
    let told = String::from_utf8_lossy(&ran.stdout);
    match ran.status.code() {
        Some(0) if told.contains("1 passed") => Ok(Verdict::Survived),
        Some(0) => bail!("there is not one test {test}:\n{told}"),
        Some(124 | 137) => Ok(Verdict::Hung),
        _ => Ok(Verdict::Failed),
    }
}

/// The row of a break in a table, if it is there with the same file and test.
fn row_of<'t>(known: &'t str, mutant: &Mutant) -> Option<&'t str> {
    let begin = row(mutant, "");
    known.lines().find(|line| line.starts_with(begin.trim_end_matches(" |")))
}

fn row(Mutant { what, file, test, .. }: &Mutant, how: &str) -> String {
    format!("| {what} | `{file}` | `{test}` | {how} |")
}

/// All breaks of the list, in its order: what ran as it came out, and of what did not the row that is known.
fn table(ran: &[&Mutant], verdicts: &[Verdict], known: &str) -> String {
    let mut page = String::from(
        "# Planted bugs\n\nSmall breaks that `cargo xtask mutants` makes one at a time in a copy of the last commit, and the test that notices each. The list is \
         `xtask/src/mutants/list.rs`; each row is of the break's last run.\n\n| break | where | noticed by | how |\n|---|---|---|---|\n",
    );
    for mutant in MUTANTS {
        let verdict = ran.iter().position(|ran| ran.what == mutant.what).map(|at| verdicts[at]);
        let row = match verdict {
            Some(verdict) => Some(row(mutant, verdict.words())),
            None => row_of(known, mutant).map(str::to_owned),
        };
        if let Some(row) = row {
            writeln!(page, "{row}").expect("a String takes everything");
        }
    }
    page
}
