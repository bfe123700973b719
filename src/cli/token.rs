//! `berth token`.

use super::args::TokenCommand;
use super::output::Output;
use super::table;
use crate::client::Client;
use crate::service::answers::{OneToken, Tokens};
use crate::service::ask::TokenBody;
use crate::trust::TokenInfo;

pub(super) async fn run(command: TokenCommand, client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    match command {
        TokenCommand::Create { name, role } => {
            let created = client.create_token(&TokenBody { name, role }).await?;
            let token = &created.token;
            let what = format!("token {} of {} ({}); its secret is not shown again", token.id, token.name, role);
            output.talk(&what);
            output.answer(&created, || format!("{}\n", created.secret.expose()))
        }
        TokenCommand::List => {
            let tokens = client.tokens().await?;
            if tokens.is_empty() {
                output.talk("no tokens");
            }
            let human = listed(&tokens);
            output.answer(&Tokens { tokens }, || human)
        }
        TokenCommand::Revoke { token } => {
            let token = client.revoke_token(&token).await?;
            let human = format!("revoked {} of {}\n", token.id, token.name);
            output.answer(&OneToken { token }, || human)
        }
    }
}

fn listed(tokens: &[TokenInfo]) -> String {
    let rows = tokens.iter().map(|token| {
        [
            token.id.to_string(),
            token.name.to_string(),
            token.role.to_string(),
            format!("{:.0}", token.created_at),
            token.revoked_at.map(|at| format!("{at:.0}")).unwrap_or_default(),
        ]
    });
    table::list(["TOKEN", "NAME", "ROLE", "CREATED", "REVOKED"], rows)
}
