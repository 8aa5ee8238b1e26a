/** Metres above chart datum between a high and a low water; the curve is half a cosine. */
export function height(high: number, low: number, hoursAfterHigh: number, duration = 6.2): number {
  const fraction = Math.min(Math.max(hoursAfterHigh / duration, 0), 1);
  return low + ((high - low) * (1 + Math.cos(Math.PI * fraction))) / 2;
}
