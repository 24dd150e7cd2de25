const PATHS = {
  menu: "M3 6h14M3 10h14M3 14h14",
  plus: "M10 4v12M4 10h12",
  send: "M10 16V4M5 9l5-5 5 5",
  stop: "M6 6h8v8H6z",
  copy: "M7 7V4h9v9h-3M4 7h9v9H4z",
  check: "M4 10.5l4 4 8-9",
  close: "M5 5l10 10M15 5L5 15",
  pen: "M4 16l1-4 8-8 3 3-8 8zM11.500 5.500l3 3",
  again: "M15.500 7.500A6 6 0 1 0 16 11M16 4v4h-4",
  chevron: "M8 5l5 5-5 5",
  left: "M12 5l-5 5 5 5",
  down: "M10 4v12M5 11l5 5 5-5",
  tool: "M12.500 3.500a4 4 0 0 0-4 5.500L3.500 14l2.500 2.500L11 11.500a4 4 0 0 0 5.500-4l-2.500 1.500-2-.500-.500-2 1.500-2.500z",
  thought: "M6 13a4 4 0 1 1 .5-7.500A4.500 4.500 0 0 1 15 8a3 3 0 0 1-.500 5.500H6zM6 16.500h.01",
  panel: "M3 4h14v12H3zM12 4v12",
  bin: "M4 6h12M8 6V4h4v2M6 6l.7 10h6.600L14 6",
  system: "M3 4h14v9H3zM7 16h6M10 13v3",
  light: "M10 7a3 3 0 1 0 0 6 3 3 0 0 0 0-6M10 2v2M10 16v2M2 10h2M16 10h2M4.500 4.500l1.400 1.400M14.100 14.100l1.400 1.400M15.500 4.500l-1.400 1.400M5.900 14.100l-1.400 1.400",
  dark: "M16 11.500A6.500 6.500 0 0 1 8.500 4 6.500 6.500 0 1 0 16 11.500z",
  fold: "M4 4h12M4 16h12M7 8.500h6M7 11.500h6",
  fork: "M6 7a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3v6M6 13a1.500 1.500 0 1 0 0 3 1.500 1.500 0 0 0 0-3M14 7a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3c0 3.500-8 2-8 5.500",
  agent: "M10 3v2.500M5 5.500h10v8H5zM3 9v2M17 9v2M8 9h.01M12 9h.01M8 16.500h4",
  said: "M4 4h12v9H9l-4 3.500V13H4zM7 7.500h6M7 10h4",
  file: "M5 3h7l3 3v11H5zM12 3v3h3",
  clip: "M14.500 8.500l-5.500 5.500a2.500 2.500 0 0 1-3.500-3.500l6.500-6.500a1.700 1.700 0 0 1 2.400 2.400L8.500 12.300",
  upload: "M10 13V4M6.500 7.500L10 4l3.500 3.500M4 13v3h12v-3",
  download: "M10 4v9M6.500 9.500L10 13l3.500-3.500M4 13v3h12v-3",
  "down-small": "M5 8l5 5 5-5",
  away: "M8 5H4v11h11v-4M11 4h5v5M16 4l-7 7",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg className="icon" width={size} height={size} viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill={name === "stop" ? "currentColor" : undefined} />
    </svg>
  );
}
