//! Transactions.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use serde::Serialize;

use crate::answers::Answer;
use crate::client::Database;
use crate::errors::{InvalidArgument, Result};
use crate::frames::Params;
use crate::pages::{has_transaction_words, merge};
use crate::runs::{Call, Run};
use crate::values::{Object, head};

/// Statements that commit together, in one script: await it. All of them are done, or none.
#[must_use = "a transaction runs when it is awaited"]
pub struct Transaction {
    run: Run,
    statements: Vec<(String, Params)>,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("statements", &self.statements.len()).finish_non_exhaustive()
    }
}

impl Transaction {
    pub(crate) fn new(db: Database) -> Self {
        Self { run: db.run(""), statements: Vec::new() }
    }

    /// Add a statement, or several. Equal names of parameters in different calls do not collide.
    pub fn statement(mut self, statements: impl Into<String>) -> Self {
        self.statements.push((statements.into(), Params::default()));
        self
    }

    /// Bind a value to `$name` in the statements that were added last.
    pub fn bind(mut self, name: &str, value: impl Serialize) -> Self {
        match self.statements.last_mut() {
            Some((_, params)) => params.bind(name, &value),
            None => self
                .run
                .params
                .fail(InvalidArgument::new("a value is bound behind the statement that it is for")),
        }
        self
    }

    /// Limit the transaction at the node, in the place of the client's limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.run = self.run.timeout(timeout);
        self
    }

    /// Keep a reason with the statements in the statement log.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.run = self.run.reason(reason);
        self
    }

    /// Declare that running the transaction twice does no harm: it is sent again after a broken connection.
    pub fn repeatable(mut self) -> Self {
        self.run = self.run.repeatable();
        self
    }

    /// Show all that was committed anywhere before the transaction began.
    pub fn current(mut self) -> Self {
        self.run = self.run.current();
        self
    }

    async fn commit(self) -> Result<Answer> {
        let Self { mut run, statements } = self;
        run.params.get()?;
        let mut all = Object::new();
        run.script.push_str("BEGIN;\n");
        for (text, params) in &statements {
            if has_transaction_words(text) {
                let reason = format!("a transaction has its own BEGIN and COMMIT: {:?}", head(text));
                return Err(InvalidArgument::new(reason).into());
            }
            run.script.push_str(&merge(&mut all, params.get()?, text));
            run.script.push_str("\n;\n"); // on a line of its own: they may end in a comment
        }
        run.script.push_str("COMMIT");
        Ok(run.bind_all(&all).answer().await?.within(1))
    }
}

impl IntoFuture for Transaction {
    type Output = Result<Answer>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.commit())
    }
}
