// An analyst in TypeScript: quotes, asks, reads the answer and is refused, with types made from the OpenAPI document.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };
type Question = components["schemas"]["Question"];

const [, , address = "", token = ""] = process.argv;
const client = createClient<paths>({ baseUrl: address, headers: { authorization: `Bearer ${token}` } });

const question: Question = { ask: "count", by: { country: ["FR", "ES"] }, clip: 5, sigma: 60 };
// @ts-expect-error: a count has no column
export const wrong: Question = { ask: "count", column: "hours", clip: 5, sigma: 60 };

const quoted = await client.POST("/v1/quote", { body: question });
if (quoted.error) throw new Error(quoted.error.detail);

const asked = await client.POST("/v1/answers", {
  params: { header: { "Idempotency-Key": "typescript" } },
  body: question,
});
if (asked.error) throw new Error(asked.error.detail);

const read = await client.GET("/v1/answer", { params: { query: { key: "typescript" } } });
if (read.error) throw new Error(read.error.detail);
const total = read.data.values.reduce<number>((sum, value) => (typeof value === "number" ? sum + value : sum), 0);

const refused = await client.POST("/v1/quote", { body: { ask: "mean", column: "diagnosis", low: 0, high: 1, rho: 0.01 } });
if (!refused.error) throw new Error("it was not refused");
const { code, detail, status }: components["schemas"]["Problem"] = refused.error;

const stranger = createClient<paths>({ baseUrl: address });
const unknown = await stranger.GET("/v1/me");

console.log(
  JSON.stringify({
    quoted: quoted.data.rho,
    asked: asked.data.values,
    status: asked.response.status,
    read: read.data.values,
    total,
    refused: [status, code, detail],
    unknown: [unknown.response.status, unknown.error?.code],
  }),
);
