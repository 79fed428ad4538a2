/*
 * What programs print for classes, methods, attributes and statuses. Words are
 * those of the original, two odd ones included: programs' output is compared with them.
 */
#include <endian.h>
#include <stddef.h>

#include "abi.h"

enum {
	CLASS_SM_LID = 0x01,
	CLASS_SA = 0x03,
	CLASS_CM = 0x07,
	CLASS_SM_DIRECT = 0x81,
};

static const char UNKNOWN[] = "<unknown>";

struct name {
	uint16_t first, last;
	const char *text;
};

/* The first row that holds the value wins. */
static const char *look_up(const struct name *table, size_t rows, unsigned value, const char *otherwise)
{
	for (size_t i = 0; i < rows; i++)
		if (value >= table[i].first && value <= table[i].last)
			return table[i].text;
	return otherwise;
}

#define LOOK_UP(table, value, otherwise) look_up(table, sizeof(table) / sizeof(table[0]), value, otherwise)

static const struct name classes[] = {
	{ CLASS_SM_LID, CLASS_SM_LID, "Subn" },
	{ CLASS_SM_DIRECT, CLASS_SM_DIRECT, "Subn" },
	{ CLASS_SA, CLASS_SA, "SubnAdm" },
	{ 0x04, 0x04, "Perf" },
	{ 0x05, 0x05, "BM" },
	{ 0x06, 0x06, "DevMgt" },
	{ CLASS_CM, CLASS_CM, "ComMgt" },
	{ 0x08, 0x08, "SNMP" },
	{ 0x10, 0x10, "DevAdm" },
	{ 0x11, 0x11, "BootMgt" },
	{ 0x12, 0x12, "BIS" },
	{ 0x21, 0x21, "CongestionManagment" },
	{ 0x09, 0x0f, "Vendor" },
	{ 0x30, 0x4f, "Vendor" },
	{ 0x10, 0x2f, "Application" },
};

static const struct name methods[] = {
	{ 0x01, 0x01, "Get" },
	{ 0x02, 0x02, "Set" },
	{ 0x81, 0x81, "GetResp" },
	{ 0x03, 0x03, "Send" },
	{ 0x05, 0x05, "Trap" },
	{ 0x06, 0x06, "Report" },
	{ 0x86, 0x86, "ReportResp" },
	{ 0x07, 0x07, "TrapRepress" },
};

static const struct name sa_methods[] = {
	{ 0x12, 0x12, "GetTable" },
	{ 0x92, 0x92, "GetTableResp" },
	{ 0x15, 0x15, "Delete" },
	{ 0x95, 0x95, "DeleteResp" },
	{ 0x14, 0x14, "GetMulti" },
	{ 0x94, 0x94, "GetMultiResp" },
	{ 0x13, 0x13, "GetTraceTable" },
};

static const struct name attributes[] = {
	{ 0x01, 0x01, "Class Port Info" },
	{ 0x02, 0x02, "Notice" },
	{ 0x03, 0x03, "Inform Info" },
};

static const struct name sm_attributes[] = {
	{ 0x10, 0x10, "NodeDescription" },
	{ 0x11, 0x11, "NodeInfo" },
	{ 0x12, 0x12, "SwitchInfo" },
	{ 0x14, 0x14, "GUIDInfo" },
	{ 0x15, 0x15, "PortInfo" },
	{ 0x16, 0x16, "P_KeyTable" },
	{ 0x17, 0x17, "SLtoVLMappingTable" },
	{ 0x18, 0x18, "VLArbitrationTable" },
	{ 0x19, 0x19, "LinearForwardingTable" },
	{ 0x1a, 0x1a, "RandomForwardingTable" },
	{ 0x1b, 0x1b, "MulticastForwardingTable" },
	{ 0x1c, 0x1c, "LinkSpeedWidthPairsTable" },
	{ 0x1d, 0x1d, "VendorSpecificMadsTable" },
	{ 0x1e, 0x1e, "HierarchyInfo" },
	{ 0x20, 0x20, "SMInfo" },
	{ 0x30, 0x30, "VendorDiag" },
	{ 0x31, 0x31, "LedInfo" },
	{ 0x32, 0x32, "CableInfo" },
	{ 0x33, 0x33, "PortInfoExtended" },
};

static const struct name sa_attributes[] = {
	{ 0x11, 0x11, "NodeRecord" },
	{ 0x12, 0x12, "PortInfoRecord" },
	{ 0x13, 0x13, "SLtoVLMappingTableRecord" },
	{ 0x14, 0x14, "SwitchInfoRecord" },
	{ 0x15, 0x15, "LinearForwardingTableRecord" },
	{ 0x16, 0x16, "RandomForwardingTableRecord" },
	{ 0x17, 0x17, "MulticastForwardingTableRecord" },
	{ 0x18, 0x18, "SMInfoRecord" },
	{ 0x19, 0x19, "LinkSpeedWidthPairsTableRecord" },
	{ 0x20, 0x20, "LinkRecord" },
	{ 0x30, 0x30, "GuidInfoRecord" },
	{ 0x31, 0x31, "ServiceRecord" },
	{ 0x33, 0x33, "P_KeyTableRecord" },
	{ 0x35, 0x35, "PathRecord" },
	{ 0x36, 0x36, "VLArbitrationTableRecord" },
	{ 0x38, 0x38, "MCMemberRecord" },
	{ 0x39, 0x39, "TraceRecord" },
	{ 0x3a, 0x3a, "MultiPathRecord" },
	{ 0x3b, 0x3b, "ServiceAssociationRecord" },
	{ 0x3c, 0x3c, "HierarchyInfoRecord" },
	{ 0x3d, 0x3d, "CableInfoRecord" },
	{ 0x3e, 0x3e, "PortInfoExtendedRecord" },
	{ 0xf3, 0xf3, "InformInfoRecord" },
};

static const struct name cm_attributes[] = {
	{ 0x10, 0x10, "ConnectRequest" },
	{ 0x11, 0x11, "MsgRcptAck" },
	{ 0x12, 0x12, "ConnectReject" },
	{ 0x13, 0x13, "ConnectReply" },
	{ 0x14, 0x14, "ReadyToUse" },
	{ 0x15, 0x15, "DisconnectRequest" },
	{ 0x16, 0x16, "DisconnectReply" },
	{ 0x17, 0x17, "ServiceIDResReq" },
	{ 0x18, 0x18, "ServiceIDResReqResp" },
	{ 0x19, 0x19, "LoadAlternatePath" },
	{ 0x1a, 0x1a, "AlternatePathResponse" },
	{ 0x1b, 0x1b, "SuggestAlternatePath" },
	{ 0x1c, 0x1c, "SuggestPathResponse" },
};

/* Bits 2 to 4 of a status. */
static const struct name invalid_fields[] = {
	{ 1, 1, "Bad Version" },
	{ 2, 2, "Method not supported" },
	{ 3, 3, "Method/Attribute combo not supported" },
	{ 7, 7, "Invalid attribute/modifier field" },
};

/* The upper byte of a status of subnet administration. */
static const struct name sa_statuses[] = {
	{ 0, 0, "Success" },
	{ 1, 1, "No Resources" },
	{ 2, 2, "Request Invalid" },
	{ 3, 3, "No Records" },
	{ 4, 4, "Too Many Records" },
	{ 5, 5, "Invalid GID" },
	{ 6, 6, "Insufficient Components" },
	{ 7, 7, "Request Denied" },
	{ 8, 8, "Priority Suggested" },
};

const char *umad_class_str(uint8_t mgmt_class)
{
	return LOOK_UP(classes, mgmt_class, UNKNOWN);
}

const char *umad_method_str(uint8_t mgmt_class, uint8_t method)
{
	const char *text = LOOK_UP(methods, method, "<unknown");

	return mgmt_class == CLASS_SA ? LOOK_UP(sa_methods, method, text) : text;
}

const char *umad_attribute_str(uint8_t mgmt_class, uint16_t attr_id)
{
	unsigned attribute = be16toh(attr_id);
	const char *text = LOOK_UP(attributes, attribute, UNKNOWN);

	switch (mgmt_class) {
	case CLASS_SM_LID:
	case CLASS_SM_DIRECT:
		return LOOK_UP(sm_attributes, attribute, text);
	case CLASS_SA:
		return LOOK_UP(sa_attributes, attribute, text);
	case CLASS_CM:
		return LOOK_UP(cm_attributes, attribute, text);
	}
	return text;
}

const char *umad_common_mad_status_str(uint16_t status)
{
	unsigned value = be16toh(status);

	if (value & 1)
		return "Busy";
	if (value & 2)
		return "Redirection required";
	return LOOK_UP(invalid_fields, value >> 2 & 7, "Success");
}

const char *umad_sa_mad_status_str(uint16_t status)
{
	return LOOK_UP(sa_statuses, be16toh(status) >> 8, "Undefined Error");
}
