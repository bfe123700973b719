use async_trait::async_trait;
use serde_json::json;

use super::house::House;
use crate::model::{Code, Refusal};
use crate::service::reload::{ReloadView, Reloads};

/// A lab file with one resource more and another address.
#[derive(Debug)]
pub(super) struct OneMore;

#[async_trait]
impl Reloads for OneMore {
    async fn reload(&self) -> Result<ReloadView, Refusal> {
        let (added, needs_restart) = (vec!["rack-1/pixel".to_owned()], vec!["gateway.api".to_owned()]);
        Ok(ReloadView { added, needs_restart, ..ReloadView::default() })
    }
}

#[tokio::test]
async fn an_admin_and_nobody_else_has_the_lab_file_read_again() {
    let house = House::new();
    let told = house.call("POST", "/v1/config/reload").await;
    assert_eq!(told.status, 200);
    let lists = json!({
        "added": ["rack-1/pixel"], "changed": [], "gone": [], "rules": [], "needsRestart": ["gateway.api"]
    });
    assert_eq!(told.body, json!({ "reload": lists }));
    for secret in [&house.agent, &house.viewer] {
        let told = house.ask("POST", "/v1/config/reload", secret, "").await;
        assert_eq!(told.code(), Code::InsufficientPermissions);
    }
    assert_eq!(house.call("GET", "/v1/config/reload").await.code(), Code::MethodNotAllowed);
}
