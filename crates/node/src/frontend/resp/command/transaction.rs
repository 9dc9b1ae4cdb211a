//! Several commands as one: `MULTI EXEC DISCARD WATCH UNWATCH`.

use super::super::fault::ErrorReply;
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, FoundNames, Pass};
use super::super::transaction::Transaction;
use super::super::unit::Unit;
use tally_core::counter::Intent;

pub fn multi(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    if pass.client.is_queueing() {
        return Err(ErrorReply::of("ERR MULTI calls can not be nested"));
    }
    pass.client.transaction.replace(Some(Transaction::default()));
    pass.ok()
}

pub fn exec(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    let transaction = pass.client.transaction.take().ok_or(ErrorReply::of("ERR EXEC without MULTI"))?;
    if transaction.spoiled {
        unwatch_all(pass);
        return Err(ErrorReply::of("EXECABORT Transaction discarded because of previous errors."));
    }
    let watches = pass.client.watching.borrow().all();
    Ok(Flow::Exec(Box::new(Unit::transaction(transaction.commands, watches))))
}

pub fn discard(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    pass.client.transaction.take().ok_or(ErrorReply::of("ERR DISCARD without MULTI"))?;
    unwatch_all(pass);
    pass.ok()
}

pub fn watch(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    if pass.client.is_queueing() {
        return Err(ErrorReply::of("ERR WATCH inside MULTI is not allowed"));
    }
    let database = pass.client.database.get();
    let find = |key: &[u8]| {
        let cell = pass.locate(key, Intent::Read)?.cell;
        Ok(FoundNames { database, key: key.to_vec(), cell })
    };
    Ok(Flow::Watch(args.from(1).map(find).collect::<Result<_, ErrorReply>>()?))
}

pub fn unwatch(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    // Those of a transaction under way were looked at where it stands.
    if pass.unit.is_none() {
        unwatch_all(pass);
    }
    pass.ok()
}

pub fn unwatch_all(pass: &mut Pass<'_>) {
    pass.client.watching.borrow_mut().forget(&*pass.server.keyspace);
}
