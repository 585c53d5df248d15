// Lines over time or position, by uPlot.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock, number } from "./format";
import { T } from "./text";
import { dark } from "./theme";

export type Line = { name: string; color: "accent" | "bad" | "muted" | "held" | "warn"; fill?: boolean; dash?: boolean; step?: boolean };

const css = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const VARIABLE = { accent: "--accent", bad: "--bad", muted: "--muted", held: "--held", warn: "--warn" };

export function Chart({ x, ys, lines, format, isTime = true, height = 180, mark }: { x: number[]; ys: (number | null)[][]; lines: Line[]; format: (value: number) => string; isTime?: boolean; height?: number; mark?: number }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const marked = useRef(mark);
  marked.current = mark;
  /** The point below the pointer. */
  const pointed = useSignal<number | null>(null);
  const isDark = dark.value;
  const shape = JSON.stringify(lines);
  useEffect(() => {
    const element = place.current!;
    const grid = { stroke: css("--line"), width: 1 };
    const axis = { stroke: css("--muted"), grid, ticks: { show: false }, font: `11px ${css("--sans")}` };
    const options: uPlot.Options = {
      width: element.clientWidth || 300,
      height,
      padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: { x: { time: isTime, range: (_, low, high) => [low, isTime ? Math.max(high, low + 60) : high] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 0, 1e-9) * 1.12 || 1] } },
      axes: [
        { ...axis, grid: { show: false }, space: 80, size: 26, values: (_, values) => values.map((value) => (isTime ? clock(1000 * value) : Number.isInteger(value) ? number(value) : "")) },
        { ...axis, size: 56, values: (_, values) => values.map((value) => format(value)) },
      ],
      series: [
        {},
        ...lines.map((line): uPlot.Series => {
          const color = css(VARIABLE[line.color]);
          return {
            label: line.name,
            stroke: color,
            width: 1.75,
            dash: line.dash ? [4, 4] : undefined,
            fill: line.fill ? `color-mix(in srgb, ${color} 12%, transparent)` : undefined,
            points: { show: false },
            paths: line.step ? uPlot.paths.stepped!({ align: 1 }) : undefined,
          };
        }),
      ],
      hooks: {
        setCursor: [(u) => void (pointed.value = u.cursor.idx ?? null)],
        draw: [
          (u) => {
            if (marked.current === undefined) return;
            const left = Math.round(u.valToPos(marked.current, "x", true));
            u.ctx.save();
            u.ctx.strokeStyle = css("--text");
            u.ctx.setLineDash([3, 3]);
            u.ctx.beginPath();
            u.ctx.moveTo(left, u.bbox.top);
            u.ctx.lineTo(left, u.bbox.top + u.bbox.height);
            u.ctx.stroke();
            u.ctx.restore();
          },
        ],
      },
    };
    plot.current = new uPlot(options, [x, ...ys], element);
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
    };
  }, [isDark, shape, height]);
  useEffect(() => {
    plot.current?.setData([x, ...ys]);
  }, [x, ys, mark]);
  // Without a pointer, the captions show the newest values, or those at the mark.
  const last = mark === undefined ? x.length - 1 : x.findLastIndex((at) => at <= mark);
  const shown = pointed.value ?? last;
  return (
    <figure class="chart">
      <div ref={place} style={{ minHeight: `${height}px` }} />
      <figcaption>
        {lines.map((line, n) => {
          const value = ys[n]?.[shown];
          return (
            <span key={line.name} class={`swatch ${line.color} ${line.dash ? "dashed" : ""}`}>
              <T text={line.name} />
              {value != null && <b class="figures">{format(value)}</b>}
            </span>
          );
        })}
        {pointed.value !== null && x[shown] !== undefined && <span class="figures pointed">{isTime ? clock(1000 * x[shown]) : `position ${number(x[shown])}`}</span>}
      </figcaption>
    </figure>
  );
}
