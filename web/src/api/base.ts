/** Where the server is. The page's <base> names `…/ui/`; everything else is beside it, whatever prefix a proxy adds. */
export const uiPath = new URL(document.baseURI).pathname.replace(/\/$/, "");
export const rootPath = uiPath.replace(/\/ui$/, "");

export function serverPath(path: string): string {
  return `${rootPath}${path}`;
}
