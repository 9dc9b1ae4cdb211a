//! Who answers a request.
//!
//! Events come first: they are most of what is asked, and to find the way through the router costs as much as to take one in.
//! They pass the same checks and are observed in the same way as everything that the router answers.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::endpoints::{events, health, openapi, page};
use super::transport::guard::{EVENTS, Peer, guard, readable};
use super::transport::observe::{Observer, observe};
use super::transport::pulse::Pulse;
use super::words::problem::Problem;
use super::{Api, Surface};
use crate::clock::Stopwatch;

pub struct Front {
    api: Api,
    observer: Arc<Observer>,
    router: TowerToHyperService<Router>,
}

impl Front {
    pub fn new(api: Api) -> Front {
        let observer = Arc::new(Observer::new(Arc::clone(&api.host.metrics)));
        let router = TowerToHyperService::new(router(api.clone(), Arc::clone(&observer)));
        Front { api, observer, router }
    }

    pub async fn answer(&self, request: Request, peer: Peer, pulse: &Arc<Pulse>) -> Response {
        let is_events = request.method() == Method::POST && request.uri().path() == EVENTS;
        match is_events && self.api.options.surface == Surface::Everything {
            true => self.answer_events(request, peer).await,
            false => self.route(request, peer, pulse).await,
        }
    }

    async fn answer_events(&self, request: Request, peer: Peer) -> Response {
        let took = Stopwatch::start();
        let access = &self.api.options.access;
        let page = access.page(request.headers());
        let is_probe = access.is_probe(&request);
        let response = match access.turn_away(&request, Some(peer), page.is_some()) {
            Some(response) => response,
            None => {
                let (head, body) = request.into_parts();
                events::take(&self.api, &head.uri, &head.headers, body, is_probe).await.into_response()
            }
        };
        if is_probe {
            // It is in no figure of what clients do.
            return response;
        }
        self.observer.observed(readable(response, page), &Method::POST, EVENTS, took.elapsed())
    }

    async fn route(&self, mut request: Request, peer: Peer, pulse: &Arc<Pulse>) -> Response {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(pulse));
        let Ok(response) = self.router.call(request).await;
        response
    }
}

fn router(api: Api, observer: Arc<Observer>) -> Router {
    let routes = match api.options.surface {
        Surface::Everything => openapi::routes(&api.options.access).merge(page::routes(&api.options.access)),
        Surface::Watch => health::routes(),
    };
    let access = Arc::new(api.options.access.clone());
    routes
        .fallback(nothing_here)
        .layer(from_fn_with_state(access, guard))
        .layer(from_fn_with_state(observer, observe))
        .with_state(api)
}

async fn nothing_here(uri: Uri) -> Problem {
    Problem::nothing_at(uri.path())
}
