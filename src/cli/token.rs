//! `berth token`.

use super::args::TokenCommand;
use super::output::Output;
use super::table;
use crate::client::Client;
use crate::client::answer::{OneToken, TokenBody, TokenView, Tokens};
use crate::model::Role;

pub(super) async fn run(command: TokenCommand, client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    match command {
        TokenCommand::Create { name, role } => {
            let created = client.create_token(&TokenBody { name, role }).await?;
            let token = &created.token;
            let what = format!("token {} of {} ({}); its secret is not shown again", token.id, token.name, word(role));
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

fn word(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Agent => "agent",
        Role::Admin => "admin",
    }
}

fn listed(tokens: &[TokenView]) -> String {
    let rows = tokens.iter().map(|token| {
        [
            token.id.to_string(),
            token.name.to_string(),
            word(token.role).to_owned(),
            format!("{:.0}", token.created_at),
            token.revoked_at.map(|at| format!("{at:.0}")).unwrap_or_default(),
        ]
    });
    table::list(["TOKEN", "NAME", "ROLE", "CREATED", "REVOKED"], rows)
}
