//! `tally verify-proof` and `tally keygen`: checking a proof without a server, and making a key that roots are signed with.

use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tally_core::proof::{Hash, hex};
use tally_node::assemble::random;
use tally_node::proof::{Checked, Proof, RootView, Signer, StartKind, check, check_signature};

/// Check a proof of a counter's value, offline
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally verify-proof proof.json --roots roots.json    roots that you have kept
  tally verify-proof proof.json --anchor 6f1f0b3a…     or one anchor of them
  tally verify-proof proof.json --key 1c9e24ab…        or whose signature it must be

GET /v1/counters/{id}/proof makes a proof, GET /v1/roots has the roots. The exit
code is 1 if it does not hold, and the first thing that is wrong is named.")]
pub struct VerifyProofArgs {
    /// What GET /v1/counters/{id}/proof answered
    proof: PathBuf,
    /// What GET /v1/roots answered, then or to somebody else: roots of the same number must be the same, and the last one of the
    /// proof there
    #[arg(long, value_name = "FILE", required_unless_present_any = ["anchor", "key"])]
    roots: Option<PathBuf>,
    /// The anchor that the proof must end with
    #[arg(long, value_name = "HEX")]
    anchor: Option<Hash>,
    /// The public key by which the last root of the proof must be signed
    #[arg(long, value_name = "HEX")]
    key: Option<Hash>,
    /// Print what it shows as JSON
    #[arg(long)]
    json: bool,
}

#[derive(serde::Deserialize)]
struct Roots {
    roots: Vec<RootView>,
}

pub fn run(args: VerifyProofArgs, out: &mut Output) -> Result<()> {
    let proof: Proof = read(&args.proof, "proof")?;
    let wrong = |what: String| Failure::new(format!("{} does not hold: {what}", args.proof.display()));
    let checked = check(&proof).map_err(wrong)?;
    if let Some(file) = &args.roots {
        hold_against(&checked, &read::<Roots>(file, "list of roots")?.roots).map_err(wrong)?;
    }
    if let Some(anchor) = args.anchor.filter(|anchor| *anchor != checked.anchor) {
        return Err(wrong(format!("it ends with the anchor {}, not with {anchor}. {ASK_UP_TO}", checked.anchor)));
    }
    if let Some(key) = args.key {
        is_signed_by(&proof, &checked, key).map_err(wrong)?;
    }
    print(&proof, &checked, args.json, out)
}

/// What to do about a proof that goes on behind what somebody has kept: whoever made it may have made up what is there.
const ASK_UP_TO: &str = "Ask for a proof up to a root that you know, with ?at= and its time";

/// Roots that somebody has kept, and those of the proof. The last one has all before it in it, and nothing that comes behind it.
fn hold_against(checked: &Checked, roots: &[RootView]) -> std::result::Result<(), String> {
    let mut is_last_there = false;
    for RootView { root, anchor, signature } in roots {
        let number = root.number;
        if root.anchor() != *anchor {
            return Err(format!("root {number} of the list says {anchor}, and comes to {}", root.anchor()));
        }
        if let Some(signature) = signature {
            check_signature(signature, anchor).map_err(|what| format!("root {number} of the list: {what}"))?;
        }
        let Some(own) = checked.anchors.get(&number) else { continue };
        if own != anchor {
            return Err(format!("root {number} has the anchor {own} in it, and {anchor} in the list"));
        }
        is_last_there |= *anchor == checked.anchor;
    }
    if is_last_there { Ok(()) } else { Err(format!("its last root is not in the list. {ASK_UP_TO}")) }
}

/// Whatever the document says is signed was looked at; what is left is by whom.
fn is_signed_by(proof: &Proof, checked: &Checked, key: Hash) -> std::result::Result<(), String> {
    let signature = proof.chain.last().and_then(|link| link.signature.as_ref());
    match signature {
        Some(signature) if signature.public_key == key.to_string() => Ok(()),
        Some(signature) => Err(format!("its last root is signed by {}", signature.public_key)),
        None => Err(format!("its last root, {}, is not signed", checked.anchor)),
    }
}

fn print(proof: &Proof, checked: &Checked, is_json: bool, out: &mut Output) -> Result<()> {
    let Checked { value, events, corrections, anchor, .. } = checked;
    let (start, offset) = (proof.start.kind, proof.start.offset);
    if is_json {
        return out.json(&json!({
            "id": proof.id, "value": value, "events": events, "corrections": corrections,
            "start": start, "from": offset, "to": proof.to, "anchor": anchor,
        }));
    }
    out.line(format_args!(
        "{} is {value}: {events} events and {corrections} corrections, up to {}",
        proof.id, proof.to
    ))?;
    out.line(match start {
        StartKind::Beginning => "counted from the first record of the log".to_owned(),
        StartKind::Base => format!("counted from the base at {offset}, whose {} is taken as it is", proof.start.value),
        StartKind::Time => format!("counted from {offset} on: what came before is not in it"),
    })?;
    out.line(format_args!("anchor {anchor}"))
}

fn read<T: DeserializeOwned>(file: &Path, what: &str) -> Result<T> {
    let failed = |why: String| Failure::new(format!("{} cannot be read as a {what}", file.display())).why(why);
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

/// Make a key that a server signs roots with
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally keygen sign.key
  tally serve --sign-key sign.key

Prints the public key, which is what others check signatures with. Nobody but
you should be able to read the file.")]
pub struct KeygenArgs {
    /// Where the key is written; it must not be there yet
    file: PathBuf,
}

pub fn keygen(args: KeygenArgs, out: &mut Output) -> Result<()> {
    let failed = |why: std::io::Error| Failure::new(format!("{} cannot be made", args.file.display())).why(why);
    let mut seed = [0; 32];
    for part in seed.chunks_mut(8) {
        part.copy_from_slice(&random().map_err(failed)?.to_be_bytes());
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.file).map_err(failed)?;
    writeln!(file, "{}", hex(&seed)).and_then(|()| file.sync_all()).map_err(failed)?;
    out.line(format_args!("{}", Signer::new(&seed).public_key()))
}
